// Time comes in by constructor: machines get an Instant, shells a Clock, tests a ManualClock.
#pragma once

#include <compare>
#include <cstdint>

namespace kintsugi {

// Signed nanoseconds.
struct Duration {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const Duration&) const = default;
  constexpr double seconds() const { return static_cast<double>(ns) * 1e-9; }
  constexpr std::int64_t ms() const { return ns / 1'000'000; }
};

constexpr Duration milliseconds(std::int64_t n) {
  return {n * 1'000'000};
}
constexpr Duration seconds(std::int64_t n) {
  return {n * 1'000'000'000};
}
constexpr Duration operator+(Duration a, Duration b) {
  return {a.ns + b.ns};
}
constexpr Duration operator-(Duration a, Duration b) {
  return {a.ns - b.ns};
}
constexpr Duration operator*(Duration a, std::int64_t n) {
  return {a.ns * n};
}

// Nanoseconds on a monotonic clock of this machine; means nothing on another machine.
struct Instant {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const Instant&) const = default;
};

constexpr Instant operator+(Instant t, Duration d) {
  return {t.ns + d.ns};
}
constexpr Instant operator-(Instant t, Duration d) {
  return {t.ns - d.ns};
}
constexpr Duration operator-(Instant a, Instant b) {
  return {a.ns - b.ns};
}
// Never comes. Only to be compared: adding to it overflows.
constexpr Instant kNoDeadline{INT64_MAX};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Instant now() const override;
};

// CLOCK_BOOTTIME: goes on while the machine sleeps.
class BootClock final : public Clock {
 public:
  Instant now() const override;
};

class ManualClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  void advance(Duration d) { now_ = now_ + d; }

 private:
  Instant now_{};
};

// Wall-clock time in nanoseconds since 1970, for logs and reports only.
std::int64_t wall_clock_ns();

}  // namespace kintsugi
