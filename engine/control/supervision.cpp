#include "engine/control/supervision.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.hpp"

namespace kintsugi {

Supervision::Remedy Supervision::crashed(const std::string& name, const std::string& why, Instant now) {
  Child& child = children_[name];
  KINTSUGI_ASSERT_MSG(child.restarts.empty() || child.restarts.back() <= now, "time went back");
  while (!child.restarts.empty() && child.restarts.front() + policy_.window <= now) child.restarts.pop_front();
  if (child.restarts.size() >= policy_.budget) {
    return Escalate{fmt::format("{} crashed again after {} restarts within {:.0f} s: {}", name, child.restarts.size(),
                                policy_.window.seconds(), why)};
  }
  Duration pause = policy_.first_pause;
  for (std::size_t i = 0; i < child.restarts.size() && pause < policy_.longest_pause; ++i) pause = pause * 2;
  child.restarts.push_back(now);
  return Restart{std::min(pause, policy_.longest_pause), ++child.incarnation};
}

std::uint32_t Supervision::revive(const std::string& name) {
  return ++children_[name].incarnation;
}

}  // namespace kintsugi
