#include "engine/control/recovery_codec.hpp"

namespace kintsugi {

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
}

Transition read_transition(schemas::Transition::Reader in) {
  Transition transition{{in.getStep()}, in.getUpdates(), std::nullopt, {}};
  if (in.hasRecord()) transition.record = read_record(in.getRecord());
  for (const auto move : in.getMoves()) {
    transition.moves.push_back({{move.getShard()}, {move.getTo()}, {move.getFrom()}, move.getTakeOver()});
  }
  return transition;
}

}  // namespace kintsugi
