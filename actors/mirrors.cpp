#include "actors/mirrors.hpp"

#include <caf/send.hpp>

#include "base/assert.hpp"

namespace kintsugi::actors {

JournalPiece read_journal_piece(schemas::JournalPiece::Reader in) {
  JournalPiece piece{in.getClusterId(), in.getEpoch(), in.getBegins(), in.getUpTo(), {}};
  for (const auto entry : in.getEntries()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(entry.begin());
    piece.entries.emplace_back(bytes, bytes + entry.size());
  }
  return piece;
}

transport::Frame journal_piece_frame(const JournalPiece& piece) {
  return make_frame([&](schemas::Message::Builder m) {
    auto out = m.initJournalPiece();
    out.setClusterId(piece.cluster_id);
    out.setEpoch(piece.epoch);
    out.setBegins(piece.begins);
    out.setUpTo(piece.up_to);
    auto entries = out.initEntries(static_cast<unsigned>(piece.entries.size()));
    for (unsigned i = 0; i < entries.size(); ++i) {
      const std::vector<std::byte>& entry = piece.entries[i];
      entries.set(i, {reinterpret_cast<const kj::byte*>(entry.data()), entry.size()});
    }
  });
}

void Mirrors::on(const Journaled& m) {
  entries_[m.number] = m.entry;
  if (m.whom) owed_.push_back({m.number, m.whom, m.promise});
  feed(mirror_event::Written{m.number});
}

void Mirrors::on(const JournalCopied& m) {
  copy_ = m.pieces;
  feed(mirror_event::CopyMade{m.node, m.number});
  copy_ = nullptr;
}

void Mirrors::feed(const MirrorEvent& event) {
  for (const MirrorEffect& effect : machine_.step(event)) {
    std::visit([this](const auto& e) { carry_out(e); }, effect);
  }
  entries_.erase(entries_.begin(), entries_.lower_bound(machine_.needed_from()));
}

void Mirrors::carry_out(const mirror_effect::CopyJournal& e) {
  if (writer_) caf::anon_send(writer_, CopyTheJournal{e.node});
}

void Mirrors::carry_out(const mirror_effect::SendCopy& e) {
  KINTSUGI_ASSERT(copy_ != nullptr);
  for (const JournalPiece& piece : *copy_) send_(e.node, journal_piece_frame(piece));
}

void Mirrors::carry_out(const mirror_effect::Send& e) {
  JournalPiece piece{cluster_id_, epoch_, false, e.last, {}};
  for (std::uint64_t number = e.first; number <= e.last; ++number) piece.entries.push_back(*entries_.at(number));
  send_(e.node, journal_piece_frame(piece));
}

void Mirrors::carry_out(const mirror_effect::Safe& e) {
  for (; !owed_.empty() && owed_.front().number <= e.up_to; owed_.pop_front()) {
    caf::anon_send(owed_.front().whom, PromiseKept{owed_.front().promise});
  }
}

}  // namespace kintsugi::actors
