#include "engine/control/allegiance.hpp"

#include <fmt/format.h>

namespace kintsugi {

Result<void> Allegiance::serve(const Supervisor& who, NodeId number) {
  if (served_ && who.cluster_id != served_->cluster_id) {
    return Error{ErrorAction::refuse,
                 "refused to serve another cluster, though it has this one's token: its supervisor "
                 "must be started with the state directory that it had"};
  }
  const bool other = served_ && who.incarnation != served_->incarnation;
  if (served_ && (who.epoch < served_->epoch || (other && who.epoch == served_->epoch))) {
    return Error{
        ErrorAction::refuse,
        fmt::format("refused to serve a supervisor of epoch {} after one of epoch {}: its state directory is an "
                    "older copy; start it with the newest",
                    who.epoch, served_->epoch)};
  }
  if (number_ != NodeId{} && number != number_) {
    return Error{ErrorAction::retry,
                 fmt::format("the supervisor does not know this as node {} any more: its ranks end, and it joins anew",
                             number_.value)};
  }
  served_ = who;
  number_ = number;
  welcome_ = true;
  lost_at_.reset();
  return {};
}

bool Allegiance::lose(const std::string& why, Instant now) {
  welcome_ = false;
  if (lost_at_) return false;
  lost_at_ = now;
  why_lost_ = why;
  return true;
}

Duration Allegiance::limit() const {
  if (limits_.empty()) return kOrphanLimit;
  Duration longest;
  for (const auto& [job, limit] : limits_) longest = std::max(longest, limit);
  return longest;
}

std::string Allegiance::last_words() const {
  return fmt::format("the supervisor is lost: {}; none came within {} s", why_lost_, limit().ns / seconds(1).ns);
}

}  // namespace kintsugi
