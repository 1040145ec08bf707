// heldout_loss MODEL_DIR TOKENS.bin [SEQUENCES]: what a saved model has learned, beside the entropy it must beat. Prints
// JSON: mean loss in nats a token over the first SEQUENCES sequences of a file that training has not seen, and the unigram
// entropy of that file. Float32, one process.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/data/batch_reader.hpp"
#include "engine/data/inspect.hpp"
#include "engine/model/hugging_face.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "tests/engine/model/whole_model.hpp"

namespace {

using namespace kintsugi;  // NOLINT(google-build-using-namespace): a program of one file

constexpr std::int64_t kMicrobatch = 4;  // sequences

Result<nlohmann::json> measure(const std::string& directory, const std::string& tokens, std::int64_t sequences) {
  KINTSUGI_TRY_ASSIGN(const HuggingFaceModel model, load_hugging_face(directory));
  KINTSUGI_TRY_ASSIGN(auto file, TokenFile::open(tokens, TokenFormat::uint16));
  KINTSUGI_TRY_ASSIGN(const TokenFacts facts, inspect_tokens(tokens, TokenFormat::uint16));
  std::map<std::string, std::vector<float>> values;
  for (std::size_t p = 0; p < model.layout().parameters().size(); ++p) {
    const Parameter& parameter = model.layout().parameters()[p];
    std::vector<float>& host = values[parameter.name];
    host.resize(static_cast<std::size_t>(parameter.count()));
    KINTSUGI_TRY(model.read(p, 0, host));
  }
  const std::int64_t length = model.config().context;
  const auto device = kernels::cpu::make_cpu_device(2);
  test::WholeModel whole(*device, model.config(), {Precision::float32, {kMicrobatch, length}, 1});
  whole.set_weights([&](const Parameter& p, std::int64_t i) { return values.at(p.name)[static_cast<std::size_t>(i)]; });

  const std::int64_t present =
      static_cast<std::int64_t>(sample_count(file->token_count(), static_cast<std::uint64_t>(length)));
  const std::int64_t rounds = std::min(sequences, present) / kMicrobatch;
  if (rounds == 0) return Error{ErrorAction::tell_user, tokens + " holds fewer than four sequences"};
  double loss = 0;
  const std::size_t rows = static_cast<std::size_t>(kMicrobatch * length);
  std::vector<std::int32_t> span(rows + 1);
  for (std::int64_t r = 0; r < rounds; ++r) {
    KINTSUGI_TRY(file->read(static_cast<std::uint64_t>(r) * rows, span, model.config().vocabulary));
    loss += whole.evaluate({{span.begin(), span.end() - 1}, {span.begin() + 1, span.end()}});
  }
  const double tokens_read = static_cast<double>(rounds) * static_cast<double>(rows);
  return nlohmann::json{{"heldout_loss_nats", loss / tokens_read},
                        {"unigram_entropy_nats", facts.unigram_entropy_nats.value()},
                        {"tokens", tokens_read}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: heldout_loss MODEL_DIR TOKENS.bin [SEQUENCES]\n");
    return 2;
  }
  const Result<nlohmann::json> result = measure(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 512);
  if (!result) {
    std::fprintf(stderr, "heldout_loss: %s\n", result.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", result->dump(2).c_str());
  return 0;
}
