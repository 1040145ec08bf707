#include "transport/describe.hpp"

namespace kintsugi::transport {
namespace {
const char* name_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::activation: return "activation";
    case MessageKind::activation_gradient: return "activation_gradient";
    case MessageKind::partial_sum: return "partial_sum";
    case MessageKind::reduced_gradient: return "reduced_gradient";
    case MessageKind::weights: return "weights";
    case MessageKind::contribution: return "contribution";
    case MessageKind::decision: return "decision";
    case MessageKind::state: return "state";
  }
  return "unknown kind";
}
}  // namespace

std::string describe(const MessageKey& key) {
  return std::string(name_of(key.kind)) + " of step " + to_string(key.step) + " (item " + std::to_string(key.item) +
         ", part " + std::to_string(key.part) + ")";
}

std::string describe_size(std::size_t bytes) {
  return bytes == kAnySize ? "any size" : std::to_string(bytes) + " B";
}

Error deadline_passed(const char* doing, RankId peer, const std::string& what) {
  return {ErrorAction::end_generation,
          std::string("deadline passed while ") + doing + " rank " + to_string(peer) + ": " + what + ""};
}

Error wrong_size(RankId from, const MessageKey& key, std::size_t expected, std::size_t arrived) {
  return {ErrorAction::end_generation, "rank " + to_string(from) + " sent " + std::to_string(arrived) + " B as " +
                                           describe(key) + " where " + describe_size(expected) +
                                           " was expected; the two ranks do not follow one plan"};
}

Error peer_gone(RankId peer, const std::string& why) {
  return {ErrorAction::end_generation, "rank " + to_string(peer) + " is gone (" + why + ")"};
}

}  // namespace kintsugi::transport
