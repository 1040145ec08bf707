#include "engine/model/hugging_face.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/model/initialise.hpp"
#include "engine/model/presets.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

using testing::HasSubstr;

ModelConfig small(ModelFamily family, bool tied) {
  const bool llama = family == ModelFamily::llama;
  return {.family = family,
          .layers = 2,
          .width = 32,
          .heads = 4,
          .kv_heads = llama ? 2 : 4,
          .hidden = 48,
          .context = 16,
          .vocabulary = 50,
          .tied = tied,
          .norm_epsilon = llama ? 1e-6f : 1e-5f,
          .rope_theta = llama ? 5e5f : 1e4f};
}

class HuggingFace : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  void write_config(const ModelConfig& model) const {
    std::ofstream(path("config.json")) << hugging_face_config(model, Precision::float32);
  }
  // Parameter i holds i everywhere.
  void write_weights(const std::string& name, const ModelLayout& layout) const {
    const SafetensorsPlan plan = plan_safetensors(layout, Precision::float32);
    const Result<FileDescriptor> fd = create_safetensors(path(name), plan);
    ASSERT_TRUE(fd.ok());
    for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
      const Parameter& p = layout.parameters()[i];
      const std::vector<float> values(static_cast<std::size_t>(p.count()), static_cast<float>(i));
      ASSERT_TRUE(write_parameter_range(fd->get(), plan, p, 0, values));
    }
  }
  // Makes the file of `name` with `from` replaced in its header; both of the same length.
  void rename_in_header(const std::string& name, const std::string& from, const std::string& to) const {
    std::ifstream in(path(name), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    for (std::size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from))
      bytes.replace(at, from.size(), to);
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  TemporaryFolder folder_;
};

TEST_F(HuggingFace, a_configuration_survives_the_way_out_and_back) {
  std::vector<ModelConfig> models;
  for (const bool tied : {false, true}) {
    for (const ModelFamily family : {ModelFamily::gpt2, ModelFamily::llama}) models.push_back(small(family, tied));
  }
  for (const std::string_view name : preset_names()) models.push_back(*find_preset(name));
  for (const ModelConfig& model : models) {
    const auto back = parse_hugging_face_config(hugging_face_config(model, Precision::bfloat16), "config.json");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, model);
  }
}

TEST_F(HuggingFace, a_directory_reads_back_parameter_by_parameter) {
  for (const ModelFamily family : {ModelFamily::gpt2, ModelFamily::llama}) {
    for (const bool tied : {false, true}) {
      const ModelConfig config = small(family, tied);
      write_config(config);
      write_weights("model.safetensors", ModelLayout(config));
      const Result<HuggingFaceModel> model = load_hugging_face(folder_.path().string());
      ASSERT_TRUE(model.ok()) << model.error().message;
      EXPECT_EQ(model->config(), config);
      for (std::size_t i = 0; i < model->layout().parameters().size(); ++i) {
        std::vector<float> values(static_cast<std::size_t>(model->layout().parameters()[i].count()));
        ASSERT_TRUE(model->read(i, 0, values));
        EXPECT_THAT(values, testing::Each(static_cast<float>(i)));
      }
    }
  }
}

TEST_F(HuggingFace, the_published_gpt2_names_without_prefix_are_known) {
  const ModelConfig config = small(ModelFamily::gpt2, true);
  write_config(config);
  write_weights("model.safetensors", ModelLayout(config));
  rename_in_header("model.safetensors", "\"transformer.", "            \"");
  const Result<HuggingFaceModel> model = load_hugging_face(folder_.path().string());
  EXPECT_TRUE(model.ok()) << model.error().message;
}

TEST_F(HuggingFace, several_files_are_found_through_their_index) {
  const ModelConfig config = small(ModelFamily::llama, false);
  write_config(config);
  write_weights("model-00001-of-00002.safetensors", ModelLayout(config));
  write_weights("model-00002-of-00002.safetensors", ModelLayout(config));
  rename_in_header("model-00001-of-00002.safetensors", "\"lm_head.weight\"", "\"xx_head.weight\"");
  std::ofstream(path("model.safetensors.index.json"))
      << R"({"weight_map":{"a":"model-00001-of-00002.safetensors","lm_head.weight":"model-00002-of-00002.safetensors"}})";
  const Result<HuggingFaceModel> model = load_hugging_face(folder_.path().string());
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::ofstream(path("model.safetensors.index.json")) << R"({"weight_map":{"a":"../x.safetensors"}})";
  EXPECT_THAT(load_hugging_face(folder_.path().string()).error().message, HasSubstr("outside its directory"));
}

TEST_F(HuggingFace, what_is_missing_or_of_another_shape_is_named) {
  const ModelConfig config = small(ModelFamily::gpt2, true);
  EXPECT_THAT(load_hugging_face(folder_.path().string()).error().message, HasSubstr("config.json"));
  write_config(config);
  EXPECT_THAT(load_hugging_face(folder_.path().string()).error().message, HasSubstr("model.safetensors.index.json"));
  ModelConfig wider = config;
  wider.vocabulary = 51;
  write_weights("model.safetensors", ModelLayout(wider));
  EXPECT_THAT(load_hugging_face(folder_.path().string()).error().message,
              HasSubstr("transformer.wte.weight: has the shape (51, 32), and config.json asks for (50, 32)"));
  ModelConfig shallower = config;
  shallower.layers = 1;
  write_weights("model.safetensors", ModelLayout(shallower));
  EXPECT_THAT(load_hugging_face(folder_.path().string()).error().message,
              HasSubstr("no tensor 'transformer.h.1.ln_1.weight'"));
}

TEST_F(HuggingFace, variants_with_another_mathematics_are_refused) {
  const auto refusal = [](const ModelConfig& model, const std::string& more) {
    std::string json = hugging_face_config(model, Precision::float32);
    json.insert(json.rfind('}'), "," + more);
    const auto parsed = parse_hugging_face_config(json, "config.json");
    return parsed ? std::string("accepted") : parsed.error().message;
  };
  const ModelConfig gpt2 = small(ModelFamily::gpt2, true);
  const ModelConfig llama = small(ModelFamily::llama, false);
  EXPECT_EQ(refusal(llama, R"("rope_scaling":null)"), "accepted");
  EXPECT_EQ(refusal(llama, R"("rope_parameters":{"rope_type":"default","rope_theta":10000.0})"), "accepted");
  EXPECT_EQ(
      refusal(gpt2, R"("activation_function":"relu")"),
      "config.json: activation_function: is \"relu\", which changes what the model computes and is not supported; "
      "only \"gelu_new\" is");
  for (const char* const more :
       {R"("rope_scaling":{"rope_type":"llama3"})", R"("hidden_act":"gelu")", R"("attention_bias":true)",
        R"("head_dim":64)", R"("rope_parameters":{"rope_type":"yarn"})", R"("model_type":"mistral")",
        R"("vocab_size":-1)", R"("num_hidden_layers":1e3)", R"("hidden_size":1000000000000)",
        R"("rms_norm_eps":"x")"}) {
    EXPECT_THAT(refusal(llama, more), testing::StartsWith("config.json: ")) << more;
  }
  EXPECT_FALSE(parse_hugging_face_config("{", "config.json").ok());
}

}  // namespace
}  // namespace kintsugi
