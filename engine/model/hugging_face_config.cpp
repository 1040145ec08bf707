// config.json of Hugging Face, both ways.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/model/hugging_face.hpp"

namespace kintsugi {

namespace {

using Json = nlohmann::json;

// The shortest decimal of a float, as a JSON number: 1e-05 and not 9.999999747378752e-06.
double shortest(float value) {
  return std::stod(fmt::format("{}", value));
}

// Reads keys of config.json; keeps the first that is wrong.
class ConfigKeys {
 public:
  ConfigKeys(const Json& json, const std::string& source) : json_(json), source_(source) {}

  bool given(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  std::int64_t integer(const char* key, std::optional<std::int64_t> fallback = {}) {
    if (!given(key) && fallback) return *fallback;
    if (given(key) && json_[key].is_number_integer()) return json_[key].get<std::int64_t>();
    refuse(key, "is missing or no whole number; use the model's own config.json");
    return 1;
  }
  float number(const char* key, float fallback) {
    if (!given(key)) return fallback;
    if (json_[key].is_number()) return static_cast<float>(json_[key].get<double>());
    refuse(key, "is no number; use the model's own config.json");
    return fallback;
  }
  bool boolean(const char* key, bool fallback) {
    if (!given(key)) return fallback;
    if (json_[key].is_boolean()) return json_[key].get<bool>();
    refuse(key, "is neither true nor false; use the model's own config.json");
    return fallback;
  }
  // Another value means another mathematics.
  void expect(const char* key, std::initializer_list<Json> values) {
    if (!given(key)) return;
    for (const Json& value : values) {
      if (json_[key] == value) return;
    }
    refuse(key, fmt::format("is {}, which changes what the model computes and is not supported; only {} is",
                            json_[key].dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60),
                            values.begin()->dump()));
  }
  void refuse(const char* key, const std::string& what) {
    if (!error_) error_ = Error{ErrorAction::tell_user, fmt::format("{}: {}: {}", source_, key, what)};
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Json& json_;
  const std::string& source_;
  std::optional<Error> error_;
};

ModelConfig read_gpt2(ConfigKeys& keys) {
  ModelConfig m{.family = ModelFamily::gpt2};
  m.layers = keys.integer("n_layer");
  m.width = keys.integer("n_embd");
  m.heads = m.kv_heads = keys.integer("n_head");
  m.hidden = keys.integer("n_inner", 4 * std::clamp<std::int64_t>(m.width, 0, 1 << 20));  // check_model bounds both
  m.context = keys.integer("n_positions", keys.given("n_ctx") ? std::optional(keys.integer("n_ctx")) : std::nullopt);
  m.vocabulary = keys.integer("vocab_size");
  m.tied = keys.boolean("tie_word_embeddings", true);
  m.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5f);
  keys.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.expect("scale_attn_weights", {true});
  keys.expect("scale_attn_by_inverse_layer_idx", {false});
  keys.expect("add_cross_attention", {false});
  return m;
}

ModelConfig read_llama(const Json& json, const std::string& source, ConfigKeys& keys) {
  ModelConfig m{.family = ModelFamily::llama};
  m.layers = keys.integer("num_hidden_layers");
  m.width = keys.integer("hidden_size");
  m.heads = keys.integer("num_attention_heads");
  m.kv_heads = keys.integer("num_key_value_heads", m.heads);
  m.hidden = keys.integer("intermediate_size");
  m.context = keys.integer("max_position_embeddings");
  m.vocabulary = keys.integer("vocab_size");
  m.tied = keys.boolean("tie_word_embeddings", false);
  m.norm_epsilon = keys.number("rms_norm_eps", 1e-6f);
  m.rope_theta = keys.number("rope_theta", 10000.0f);
  // Newer versions of transformers keep both in one object.
  if (keys.given("rope_parameters") && json["rope_parameters"].is_object()) {
    ConfigKeys rope(json["rope_parameters"], source);
    m.rope_theta = rope.number("rope_theta", m.rope_theta);
    rope.expect("rope_type", {"default"});
    if (rope.error()) keys.refuse("rope_parameters", "only rope_type \"default\" with a rope_theta is supported");
  }
  if (keys.given("rope_scaling")) keys.refuse("rope_scaling", "scaled rotary positions are not supported");
  keys.expect("hidden_act", {"silu"});
  keys.expect("attention_bias", {false});
  keys.expect("mlp_bias", {false});
  if (keys.given("head_dim") && m.heads > 0) keys.expect("head_dim", {m.width / m.heads});
  return m;
}

}  // namespace

std::string hugging_face_config(const ModelConfig& m, Precision precision) {
  const char* const dtype = precision == Precision::float32 ? "float32" : "bfloat16";
  nlohmann::ordered_json json;
  if (m.family == ModelFamily::gpt2) {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"n_layer", m.layers},
            {"n_embd", m.width},
            {"n_head", m.heads},
            {"n_inner", m.hidden},
            {"n_positions", m.context},
            {"n_ctx", m.context},
            {"vocab_size", m.vocabulary},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", shortest(m.norm_epsilon)},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", 0.0}};
  } else {
    json = {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"num_hidden_layers", m.layers},
            {"hidden_size", m.width},
            {"intermediate_size", m.hidden},
            {"num_attention_heads", m.heads},
            {"num_key_value_heads", m.kv_heads},
            {"head_dim", m.head_dim()},
            {"max_position_embeddings", m.context},
            {"vocab_size", m.vocabulary},
            {"hidden_act", "silu"},
            {"rms_norm_eps", shortest(m.norm_epsilon)},
            {"rope_theta", shortest(m.rope_theta)},
            {"attention_bias", false},
            {"mlp_bias", false}};
  }
  json["tie_word_embeddings"] = m.tied;
  // The vocabulary has no special tokens of ours; the defaults of transformers may lie outside it.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

Result<ModelConfig> parse_hugging_face_config(const std::string& text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{ErrorAction::tell_user, source + ": is no JSON object; copy the directory again"};
  ConfigKeys keys(json, source);
  const Json type = json.value("model_type", Json());
  ModelConfig model;
  if (type == "gpt2")
    model = read_gpt2(keys);
  else if (type == "llama")
    model = read_llama(json, source, keys);
  else
    keys.refuse("model_type", "only gpt2 and llama can be imported");
  if (keys.error()) return *keys.error();
  KINTSUGI_TRY(check_model(model, source));
  return model;
}

}  // namespace kintsugi
