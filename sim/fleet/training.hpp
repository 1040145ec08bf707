// Training as a sequence of stretches in which nothing happens, and what is lost between and inside them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "sim/fleet/outcome.hpp"

namespace kintsugi::sim {

class Training {
 public:
  explicit Training(Outcome& outcome) : outcome_(outcome) {}

  bool is_running() const { return running_; }
  // Steps of `step` seconds from `now` on, of which `lost_to` is to blame for what is above the full speed.
  void run(Instant now, double step, const std::string& lost_to) {
    if (stopped_) book(stopped_for_, (now - *stopped_).seconds());
    stopped_.reset();
    running_ = true;
    since_ = now;
    step_ = step;
    slow_for_ = lost_to;
  }
  // Other steps from here on; the one in progress keeps its share of what is done.
  void change_pace(Instant now, double step, const std::string& lost_to) {
    settle(now);
    const double done = fraction_;
    run(now, step, lost_to);
    since_ = now - nanoseconds(done * step);
    book(lost_to, -done * (step - outcome_.step_seconds));  // that share was paid for at the former pace
  }
  // Nothing becomes final any more; the step in progress is for nothing.
  void stop(Instant now, const std::string& cause) {
    if (!running_) return;
    settle(now);
    book(cause, fraction_ * outcome_.step_seconds);
    fraction_ = 0;
    running_ = false;
    stopped_ = now;
    stopped_for_ = cause;
  }
  // Steps that were final come undone.
  void go_back(double steps, const std::string& cause) {
    outcome_.steps -= steps;
    book(cause, steps * outcome_.step_seconds);
  }
  void finish(Instant now) {
    if (running_) {
      settle(now);
      book("step in progress at the end", fraction_ * outcome_.step_seconds);
    }
    if (!running_ && stopped_) book(stopped_for_, (now - *stopped_).seconds());
    running_ = false;
  }

  // The first moment after `now` at which a step becomes final.
  Instant next_commit(Instant now) const { return commit_after(now, 1); }
  Instant commit_after(Instant now, double count) const {
    const double whole = whole_steps(now);
    Instant at = since_ + nanoseconds((whole + count) * step_);
    while (at <= now) at = at + nanoseconds(step_);
    return at;
  }
  double steps_at(Instant now) const { return outcome_.steps + (running_ ? whole_steps(now) : 0); }

  void book(const std::string& cause, double seconds) { outcome_.lost[cause].seconds += seconds; }

 private:
  static Duration nanoseconds(double seconds) { return {static_cast<std::int64_t>(seconds * 1e9 + 0.5)}; }
  double whole_steps(Instant now) const {
    return static_cast<double>(static_cast<std::int64_t>((now - since_).seconds() / step_ + 1e-9));
  }
  void settle(Instant now) {
    const double whole = whole_steps(now);
    outcome_.steps += whole;
    fraction_ = std::max(0.0, (now - since_).seconds() / step_ - whole);
    book(slow_for_, (whole + fraction_) * (step_ - outcome_.step_seconds));
    since_ = now;
  }

  Outcome& outcome_;
  bool running_ = false;
  Instant since_;
  double step_ = 1;
  double fraction_ = 0;  // of the step in progress, done
  std::string slow_for_;
  std::optional<Instant> stopped_;
  std::string stopped_for_;
};

}  // namespace kintsugi::sim
