#include "engine/pipeline/communicator.hpp"

namespace kintsugi {

namespace collectives = transport::collectives;
using kernels::View;
using transport::MessageKey;

Communicator::Communicator(kernels::Device& device, kernels::Stream& stream, transport::PointToPoint& peers,
                           RankId self, const Clock& clock, Duration wait_limit)
    : device_(device),
      stream_(stream),
      peers_(peers, clock),
      party_{peers_, device, stream, self},
      clock_(clock),
      wait_limit_(wait_limit) {}

namespace {
void keep(Outbox& outbox, const std::vector<transport::SendTicket>& tickets) {
  outbox.insert(outbox.end(), tickets.begin(), tickets.end());
}
}  // namespace

void Communicator::send(RankId to, const MessageKey& key, View bytes, Outbox& outbox) {
  stream_.enqueue("send", [this, to, key, bytes, &outbox]() -> Result<void> {
    KINTSUGI_TRY_ASSIGN(const auto ticket, peers_.send(to, key, collectives::lendable(party_, bytes), deadline()));
    outbox.push_back(ticket);
    return {};
  });
}

void Communicator::receive(RankId from, const MessageKey& key, View into) {
  stream_.enqueue("receive", [this, from, key, into]() -> Result<void> {
    KINTSUGI_TRY_ASSIGN(const auto arrival, peers_.receive(from, key, into.bytes(), deadline()));
    const collectives::HeldArrival held(peers_, arrival);
    device_.ops().copy(stream_, into, device_.host_visible(held.bytes(), into.dtype));
    return {};
  });
}

void Communicator::send_partial(const collectives::Reduction& reduction, RankId primary,
                                const collectives::PartialSum& sum, Outbox& outbox) {
  stream_.enqueue("send partial sum", [this, reduction, primary, sum, &outbox]() -> Result<void> {
    KINTSUGI_TRY_ASSIGN(const auto tickets,
                        collectives::send_partial_sums(party_, reduction, primary, std::span(&sum, 1), deadline()));
    keep(outbox, tickets);
    return {};
  });
}

void Communicator::reduce(const collectives::Reduction& reduction, collectives::LaneAssignment assignment,
                          std::vector<collectives::PartialSum> own, View out) {
  stream_.enqueue("reduce", [this, reduction, assignment = std::move(assignment), own = std::move(own), out] {
    return collectives::reduce_to_primary(party_, reduction, assignment, own, out, deadline());
  });
}

void Communicator::publish(const collectives::ShardVersion& which, View weights, std::vector<RankId> subscribers,
                           Outbox& outbox) {
  stream_.enqueue("publish", [this, which, weights, to = std::move(subscribers), &outbox]() -> Result<void> {
    KINTSUGI_TRY_ASSIGN(const auto tickets, collectives::publish(party_, which, weights, to, deadline()));
    keep(outbox, tickets);
    return {};
  });
}

void Communicator::collect(std::vector<collectives::Subscription> wanted) {
  stream_.enqueue("collect",
                  [this, wanted = std::move(wanted)] { return collectives::collect(party_, wanted, deadline()); });
}

void Communicator::drain(Outbox& outbox) {
  stream_.enqueue("drain", [this, &outbox]() -> Result<void> {
    KINTSUGI_TRY(collectives::wait_all_sent(peers_, outbox, deadline()));
    outbox.clear();
    return {};
  });
}

}  // namespace kintsugi
