#include "transport/collectives/vote.hpp"

#include "transport/collectives/party.hpp"

namespace kintsugi::transport::collectives {
namespace {

Result<void> check_size(const Bytes& bytes, const char* what) {
  if (bytes.size() <= kMaxSmallMessageBytes) return {};
  return Error{ErrorAction::tell_user, std::string("the ") + what + " of a vote takes " + std::to_string(bytes.size()) +
                                           " B of at most " + std::to_string(kMaxSmallMessageBytes) +
                                           "; configure fewer shards"};
}

Result<Bytes> gather(PointToPoint& links, const std::vector<RankId>& children, Bytes own, const Vote& vote,
                     Instant deadline) {
  Bytes merged = std::move(own);
  for (const RankId child : children) {
    KINTSUGI_TRY_ASSIGN(
        const Arrival arrival,
        links.receive(child, {MessageKind::contribution, vote.step, vote.phase, 0}, kAnySize, deadline));
    const HeldArrival held(links, arrival);
    KINTSUGI_TRY_ASSIGN(merged, vote.merge(merged, held.bytes()));
  }
  return merged;
}

}  // namespace

Result<Bytes> vote(PointToPoint& links, const ControlTree& tree, RankId self, Bytes own, const Vote& vote,
                   Instant deadline) {
  const std::vector<RankId> children = tree.children(self);
  const MessageKey decision_key{MessageKind::decision, vote.step, vote.phase, 0};
  KINTSUGI_TRY_ASSIGN(const Bytes merged, gather(links, children, std::move(own), vote, deadline));
  KINTSUGI_TRY(check_size(merged, "contribution"));
  Bytes decision;
  std::vector<SendTicket> tickets;
  if (const auto parent = tree.parent(self)) {
    KINTSUGI_TRY_ASSIGN(const SendTicket sent,
                        links.send(*parent, {MessageKind::contribution, vote.step, vote.phase, 0}, merged, deadline));
    tickets.push_back(sent);
    KINTSUGI_TRY_ASSIGN(const Arrival arrival, links.receive(*parent, decision_key, kAnySize, deadline));
    const HeldArrival held(links, arrival);
    decision.assign(held.bytes().begin(), held.bytes().end());
  } else {
    KINTSUGI_TRY_ASSIGN(decision, vote.decide(merged));
    KINTSUGI_TRY(check_size(decision, "decision"));
  }
  for (const RankId child : children) {
    KINTSUGI_TRY_ASSIGN(const SendTicket sent, links.send(child, decision_key, decision, deadline));
    tickets.push_back(sent);
  }
  // Both buffers end here: their bytes are lent until sent.
  KINTSUGI_TRY(wait_all_sent(links, tickets, deadline));
  return decision;
}

}  // namespace kintsugi::transport::collectives
