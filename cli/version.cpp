#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/kintsugi_commit.h"
#include "kernels/cpu/cpu_device.hpp"

namespace kintsugi::cli {

std::string kintsugi_version() {
  return KINTSUGI_VERSION;
}

void add_version(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("version", "Version, commit and the features built in");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->footer("Example:\n  kintsugi version --json");
  command->callback([&action, json] {
    action = [json] {
      const std::string variant = kernels::cpu::cpu_kernel_variant();
      if (*json) {
        const nlohmann::ordered_json facts = {
            {"version", KINTSUGI_VERSION},
            {"commit", KINTSUGI_COMMIT},
            {"kernel_variant", variant},
            {"features", {{"cpu", true}, {"cuda", false}, {"nccl", false}, {"ucx", true}}}};
        std::printf("%s\n", facts.dump(2).c_str());
      } else {
        std::printf("kintsugi %s (%s)\nkernels:  %s\nfeatures: cpu yes, cuda no, nccl no, ucx yes\n", KINTSUGI_VERSION,
                    KINTSUGI_COMMIT, variant.c_str());
      }
      return kDone;
    };
  });
}

}  // namespace kintsugi::cli
