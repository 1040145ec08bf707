// The `kintsugi` command. Subcommands declare themselves; the chosen one runs after all arguments were understood.
#include "cli/command.hpp"

#include <cstdio>
#include <exception>

namespace {

int run(int argc, char** argv) {
  using namespace kintsugi::cli;  // NOLINT(google-build-using-namespace)
  CLI::App app("An elastic training runtime for transformers: the bits of a job do not depend on who computes them.",
               "kintsugi");
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", kintsugi_version());
  app.footer(
      "Example, on one machine with nothing configured:\n"
      "  kintsugi data prepare --output train.bin ~/texts\n"
      "  kintsugi run examples/tiny.yaml --ranks 2 --save model\n"
      "  kintsugi generate --model model --prompt 'It was '\n\n"
      "`kintsugi COMMAND --help` shows more. Exit codes: 0 done; 1 the job failed; 2 wrong usage or configuration;\n"
      "3 refused by, or no answer from, the cluster; 130 interrupted.");
  Action action;
  for (const auto add :
       {add_run, add_supervise, add_join, add_submit, add_cancel, add_pause, add_resume, add_drain, add_evict,
        add_inject, add_chaos, add_sim, add_status, add_explain, add_generate, add_data, add_version, add_rank}) {
    add(app, action);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {  // --help, --version
    return app.exit(wish);
  } catch (const CLI::ParseError& wrong) {
    const CLI::App* at = &app;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    std::string name = at->get_name();
    for (const CLI::App* up = at->get_parent(); up != nullptr; up = up->get_parent())
      name = up->get_name() + " " + name;
    std::fprintf(stderr, "kintsugi: %s\nTry `%s --help`.\n", wrong.what(), name.c_str());
    return kUsage;
  }
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  kintsugi::cli::keep_own_arguments(argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {  // out of memory, a file system that throws
    std::fprintf(stderr, "kintsugi: %s\n", e.what());
    return 1;
  }
}
