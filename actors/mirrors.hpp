// The nodes that keep the supervisor's journal as well: the shell of JournalMirrors. Owned by the cluster supervisor, which
// has the links.
#pragma once

#include <caf/actor.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/control_message.hpp"
#include "actors/journal_writer.hpp"
#include "engine/control/journal_mirrors.hpp"

namespace kintsugi::actors {

JournalPiece read_journal_piece(schemas::JournalPiece::Reader in);
transport::Frame journal_piece_frame(const JournalPiece& piece);

class Mirrors {
 public:
  using SendToNode = std::function<void(NodeId, transport::Frame)>;
  // Of the journal: what a JournalPiece says of its own.
  Mirrors(std::uint64_t cluster_id, std::uint32_t epoch, SendToNode send)
      : cluster_id_(cluster_id), epoch_(epoch), send_(std::move(send)) {}

  void begin(caf::actor writer) { writer_ = std::move(writer); }  // first
  void end() {                                                    // last: lets go of actors
    writer_ = nullptr;
    owed_.clear();
  }
  void came(NodeId node, const std::string& rack) { feed(mirror_event::NodeCame{node, rack}); }
  void went(NodeId node) { feed(mirror_event::NodeWent{node}); }
  void kept(NodeId node, std::uint64_t up_to) { feed(mirror_event::Kept{node, up_to}); }
  void on(const Journaled& m);
  void on(const JournalCopied& m);
  std::set<NodeId> keepers() const { return machine_.keepers(); }

 private:
  struct Owed {
    std::uint64_t number = 0;
    caf::actor whom;
    std::uint64_t promise = 0;
  };

  void feed(const MirrorEvent& event);
  void carry_out(const mirror_effect::CopyJournal& e);
  void carry_out(const mirror_effect::SendCopy& e);
  void carry_out(const mirror_effect::Send& e);
  void carry_out(const mirror_effect::Safe& e);

  const std::uint64_t cluster_id_;
  const std::uint32_t epoch_;
  const SendToNode send_;
  caf::actor writer_;
  JournalMirrors machine_;
  std::map<std::uint64_t, std::shared_ptr<const std::vector<std::byte>>> entries_;  // that a mirror still lacks
  std::deque<Owed> owed_;
  std::shared_ptr<const std::vector<JournalPiece>> copy_;  // the one just made
};

}  // namespace kintsugi::actors
