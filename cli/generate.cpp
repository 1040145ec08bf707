#include <unistd.h>

#include <cstdio>

#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "engine/data/prepare.hpp"
#include "engine/model/generator.hpp"
#include "engine/model/hugging_face.hpp"
#include "kernels/cpu/cpu_device.hpp"

namespace kintsugi::cli {

namespace {

struct GenerateOptions {
  std::string model;
  std::string prompt;
  std::int64_t tokens = 400;
  SamplingOptions sampling{0.8, 0, 0};
};

struct LoadedWeights {
  std::vector<std::unique_ptr<kernels::Buffer>> buffers;
  GroupViews views;
};

Result<LoadedWeights> load_weights(const HuggingFaceModel& model, kernels::Device& device, kernels::Stream& stream) {
  LoadedWeights weights;
  const ModelLayout& layout = model.layout();
  for (const ParameterGroup& group : layout.groups()) {
    if (interrupted()) return Error{ErrorAction::cancelled, "interrupted"};
    std::vector<float> host(static_cast<std::size_t>(group.count));
    for (std::uint32_t p = group.first_parameter; p < group.first_parameter + group.parameter_count; ++p) {
      const Parameter& parameter = layout.parameters()[p];
      KINTSUGI_TRY(model.read(p, 0,
                              std::span(host).subspan(static_cast<std::size_t>(parameter.offset),
                                                      static_cast<std::size_t>(parameter.count()))));
    }
    KINTSUGI_TRY_ASSIGN(std::unique_ptr<kernels::Buffer> buffer, device.allocate(host.size() * sizeof(float)));
    weights.views.push_back(buffer->as(kernels::DType::float32, 0, group.count));
    device.copy_to_device(stream, weights.views.back(), host.data());
    KINTSUGI_TRY(stream.synchronize(kNoDeadline));
    weights.buffers.push_back(std::move(buffer));
  }
  return weights;
}

// A terminal is shown no control characters, which could be commands to it.
void print_byte(std::int32_t token, bool terminal) {
  const auto c = static_cast<unsigned char>(token);
  const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
  std::putchar(terminal && control ? '?' : c);
  std::fflush(stdout);
}

int generate(const GenerateOptions& o) {
  catch_interrupts();
  const Result<HuggingFaceModel> model = load_hugging_face(o.model);
  if (!model) return fail(model.error());
  if (model->config().vocabulary != kByteVocabulary) {
    return fail(
        {ErrorAction::tell_user, o.model + ": its vocabulary has " + std::to_string(model->config().vocabulary) +
                                     " tokens; without a tokenizer only models over the 256 bytes can be sampled"});
  }
  const auto device = kernels::cpu::make_cpu_device(static_cast<int>(usable_cores()));
  const auto stream = device->create_stream();
  const Result<LoadedWeights> weights = load_weights(*model, *device, *stream);
  if (!weights) return fail(weights.error());
  Result<Generator> generator = Generator::create(*device, model->layout(), Precision::float32, weights->views);
  if (!generator) return fail(generator.error());

  // A text begins where the one before it ended.
  std::vector<std::int32_t> text = {kDocumentSeparator};
  for (const char c : o.prompt) text.push_back(static_cast<unsigned char>(c));
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  std::fputs(o.prompt.c_str(), stdout);
  const Result<void> done = generator->generate(*stream, text, o.tokens, o.sampling, [&](std::int32_t token) {
    if (interrupted() || token == kDocumentSeparator) return false;
    print_byte(token, terminal);
    return true;
  });
  std::putchar('\n');
  if (interrupted()) return kInterrupted;
  return done ? kDone : fail(done.error());
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "A sample from a saved model");
  auto o = std::make_shared<GenerateOptions>();
  command->add_option("--model", o->model, "what --save wrote: config.json and model.safetensors")
      ->required()
      ->type_name("DIR");
  command->add_option("--prompt", o->prompt, "how the text begins")->type_name("TEXT");
  command->add_option("--tokens", o->tokens, "at most so many more bytes; fewer when the model ends the document")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--temperature", o->sampling.temperature, "0: always the likeliest")
      ->check(CLI::Range(0.0, 1e6) & CLI::Number &
              CLI::Validator(
                  [](std::string& t) {
                    return t.find_first_of("nN") == std::string::npos ? std::string() : "is not a number: " + t;
                  },
                  "NUMBER"))
      ->capture_default_str();
  command->add_option("--top-k", o->sampling.top_k, "draw among the K likeliest only; 0: all")
      ->type_name("K")
      ->check(CLI::Range(std::int64_t{0}, kByteVocabulary))
      ->capture_default_str();
  command->add_option("--seed", o->sampling.seed, "another seed, another text")->capture_default_str();
  command->footer("Example:\n  kintsugi generate --model model --prompt '#include <' --tokens 300 --seed 7");
  command->callback([&action, o] { action = [o] { return generate(*o); }; });
}

}  // namespace kintsugi::cli
