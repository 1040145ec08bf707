#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace kintsugi {

void assertion_failed(const char* condition, const char* file, int line, const char* why) noexcept {
  std::fprintf(stderr, "kintsugi: assertion failed at %s:%d: %s%s%s. This is a bug; please report it.\n", file, line,
               condition, why != nullptr ? ": " : "", why != nullptr ? why : "");
  std::fflush(stderr);
  std::abort();
}

}  // namespace kintsugi
