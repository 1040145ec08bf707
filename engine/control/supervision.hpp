// What a parent does about children that crash, as a pure machine: each is restarted after a pause that doubles, so often
// within a window; a child that has spent this budget is its parent's own failure (Erlang/OTP, "Supervision Principles").
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>

#include "base/clock.hpp"

namespace kintsugi {

struct SupervisionPolicy {
  std::uint32_t budget = 4;  // restarts of one child within the window
  Duration window = seconds(60);
  // A crash that comes of what is there at the moment shall not meet the same moment; nobody waits long for an actor.
  Duration first_pause = milliseconds(10);
  Duration longest_pause = seconds(1);
};

class Supervision {
 public:
  struct Restart {
    Duration after;
    std::uint32_t incarnation = 0;  // from 2
  };
  struct Escalate {
    std::string why;  // for people
  };
  using Remedy = std::variant<Restart, Escalate>;

  explicit Supervision(SupervisionPolicy policy = {}) : policy_(policy) {}

  // The child `name`, known from its first crash on, has crashed: `why`. `now` never goes back.
  Remedy crashed(const std::string& name, const std::string& why, Instant now);
  // The parent itself was restarted: children for which it escalated get their next incarnation. The budget is not renewed by
  // that: what crashes again within the window escalates at once.
  std::uint32_t revive(const std::string& name);
  // The child ended by itself; another one of that name begins anew.
  void ended(const std::string& name) { children_.erase(name); }

 private:
  struct Child {
    std::uint32_t incarnation = 1;
    std::deque<Instant> restarts;  // within the window
  };

  const SupervisionPolicy policy_;
  std::map<std::string, Child> children_;
};

}  // namespace kintsugi
