#include "base/clock.hpp"

#include <time.h>

namespace kintsugi {

namespace {
std::int64_t read_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}
}  // namespace

Instant SteadyClock::now() const {
  return {read_ns(CLOCK_MONOTONIC)};
}
Instant BootClock::now() const {
  return {read_ns(CLOCK_BOOTTIME)};
}
std::int64_t wall_clock_ns() {
  return read_ns(CLOCK_REALTIME);
}

}  // namespace kintsugi
