// Whom a node serves, and for how long it holds out without (DESIGN C6). One supervisor at a time, of one cluster, and never
// one older than it has served: an older one has not heard of what was promised to the newer.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace kintsugi {

// One life of one supervisor.
struct Supervisor {
  std::uint64_t cluster_id = 0;
  std::uint32_t epoch = 0;
  Incarnation incarnation;
};

// Without a job, and for a job that has not said its own.
constexpr Duration kOrphanLimit = seconds(600);

class Allegiance {
 public:
  // The supervisor welcomes this node as `number`. Error{refuse}: it must not be served; why. Error{retry}: it knows this
  // node under another number, which so must come as a new one: after forget_number().
  Result<void> serve(const Supervisor& who, NodeId number);
  // The link is down. True: it was up until now, and nobody has been told.
  bool lose(const std::string& why, Instant now);
  void forget_number() { number_ = {}; }

  bool has_served() const { return served_.has_value(); }
  bool is_welcome() const { return welcome_; }
  // It still lives, but its link was down: to it this node is lost.
  bool was_given_up_by(Incarnation supervisor) const { return served_ && served_->incarnation == supervisor; }
  NodeId number() const { return number_; }  // 0: a new one is to be given
  const std::optional<Supervisor>& served() const { return served_; }

  void set_limit(JobId job, Duration limit) { limits_[job] = limit; }
  void forget_limit(JobId job) { limits_.erase(job); }
  Duration limit() const;
  // Until the limit. `now` as in lose(): on a clock that runs while the machine sleeps.
  Duration time_left(Instant now) const { return lost_at_ ? *lost_at_ + limit() - now : limit(); }
  std::string last_words() const;

 private:
  std::optional<Supervisor> served_;
  NodeId number_;
  bool welcome_ = false;
  std::optional<Instant> lost_at_;
  std::string why_lost_;
  std::map<JobId, Duration> limits_;
};

}  // namespace kintsugi
