#include "cli/interrupt.hpp"

#include <csignal>
#include <initializer_list>

namespace kintsugi::cli {

namespace {
volatile std::sig_atomic_t caught = 0;  // signal handlers reach nothing but globals
}

void catch_interrupts() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(number, [](int) { caught = 1; });
  }
}

bool interrupted() {
  return caught != 0;
}

}  // namespace kintsugi::cli
