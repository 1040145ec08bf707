#include "engine/control/recovery_codec.hpp"

namespace kintsugi {

namespace {

void write_sum(const KeptSum& kept, schemas::PartialSum::Builder out) {
  out.setLayer(kept.sum.layer.value);
  out.setFirstLane(kept.sum.node.first);
  out.setLanes(kept.sum.node.count);
  out.setRank(kept.rank.value);
}

KeptSum read_sum(schemas::PartialSum::Reader in) {
  return {{{in.getLayer()}, {in.getFirstLane(), in.getLanes()}}, {in.getRank()}};
}

void write_lanes(const std::vector<LaneId>& lanes, capnp::List<std::uint32_t>::Builder out) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, lanes[i].value);
}

std::vector<LaneId> read_lanes(capnp::List<std::uint32_t>::Reader in) {
  std::vector<LaneId> lanes;
  for (const std::uint32_t lane : in) lanes.push_back({lane});
  return lanes;
}

}  // namespace

void write_holding(const RankReport& report, schemas::Holding::Builder out) {
  out.setRank(report.rank.value);
  auto copies = out.initCopies(static_cast<unsigned>(report.copies.size()));
  for (unsigned i = 0; i < copies.size(); ++i) {
    const CopyReport& copy = report.copies[i];
    copies[i].setShard(copy.shard.value);
    copies[i].setVersion(copy.version.value);
    copies[i].setUpdates(copy.updates);
    copies[i].initDigest().setHigh(copy.digest.high);
    copies[i].getDigest().setLow(copy.digest.low);
    copies[i].setHasNextGradient(copy.has_next_gradient);
  }
  if (report.record) write_record(*report.record, out.initRecord());
  out.setStep(report.sums.step.value);
  auto sums = out.initSums(static_cast<unsigned>(report.sums.sums.size()));
  for (unsigned i = 0; i < sums.size(); ++i) write_sum({report.sums.sums[i], report.rank}, sums[i]);
  write_lanes(report.sums.begun, out.initBegun(static_cast<unsigned>(report.sums.begun.size())));
}

RankReport read_holding(schemas::Holding::Reader in, NodeId node, bool alive) {
  RankReport report{{in.getRank()}, node, alive, {}, std::nullopt};
  for (const auto copy : in.getCopies()) {
    report.copies.push_back({{copy.getShard()},
                             {copy.getVersion()},
                             copy.getUpdates(),
                             {copy.getDigest().getHigh(), copy.getDigest().getLow()},
                             copy.getHasNextGradient()});
  }
  if (in.hasRecord()) report.record = read_record(in.getRecord());
  report.sums.step = {in.getStep()};
  for (const auto sum : in.getSums()) report.sums.sums.push_back(read_sum(sum).sum);
  report.sums.begun = read_lanes(in.getBegun());
  return report;
}

void write_transition(const Transition& transition, schemas::Transition::Builder out) {
  out.setStep(transition.step.value);
  out.setUpdates(transition.updates);
  if (transition.record) write_record(*transition.record, out.initRecord());
  auto moves = out.initMoves(static_cast<unsigned>(transition.moves.size()));
  for (unsigned i = 0; i < moves.size(); ++i) {
    const ShardMove& move = transition.moves[i];
    moves[i].setShard(move.shard.value);
    moves[i].setTo(move.to.value);
    moves[i].setFrom(move.from.value);
    moves[i].setTakeOver(move.take_over);
  }
  auto sums = out.initSums(static_cast<unsigned>(transition.sums.size()));
  for (unsigned i = 0; i < sums.size(); ++i) write_sum(transition.sums[i], sums[i]);
  write_lanes(transition.again, out.initAgain(static_cast<unsigned>(transition.again.size())));
}

Transition read_transition(schemas::Transition::Reader in) {
  Transition transition{{in.getStep()}, in.getUpdates(), std::nullopt, {}};
  if (in.hasRecord()) transition.record = read_record(in.getRecord());
  for (const auto move : in.getMoves()) {
    transition.moves.push_back({{move.getShard()}, {move.getTo()}, {move.getFrom()}, move.getTakeOver()});
  }
  for (const auto sum : in.getSums()) transition.sums.push_back(read_sum(sum));
  transition.again = read_lanes(in.getAgain());
  return transition;
}

}  // namespace kintsugi
