// Which nodes keep a copy of the supervisor's journal, and when a promise is kept by enough of them (docs/decisions/0016).
// Pure: entries are numbers here, the shell has their bytes.
//
// A mirror first gets a whole copy, which stands for all entries up to a number, then entries in order, one batch in
// flight. A mirror that does not keep up is dropped, and so is one whose link ends; another node takes its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"

namespace kintsugi {

constexpr std::size_t kJournalMirrors = 3;       // so that two still have all while a third is found
constexpr std::size_t kPromisedMirrors = 2;      // have a promise before it is acted upon; all where there are fewer
constexpr std::uint64_t kMirrorBatch = 256;      // entries
constexpr std::uint64_t kMirrorBehind = 16'384;  // entries: whoever lags more is given up

namespace mirror_event {
struct NodeCame {
  NodeId node;
  std::string rack;  // empty: none
};
struct NodeWent {
  NodeId node;
};
struct Written {  // on the supervisor's disk, in order, from 1
  std::uint64_t number = 0;
};
struct CopyMade {  // what CopyJournal asked for: of all entries up to `number`, the newest that was Written
  NodeId node;
  std::uint64_t number = 0;
};
struct Kept {  // the node says so
  NodeId node;
  std::uint64_t number = 0;
};
}  // namespace mirror_event
using MirrorEvent = std::variant<mirror_event::NodeCame, mirror_event::NodeWent, mirror_event::Written,
                                 mirror_event::CopyMade, mirror_event::Kept>;

namespace mirror_effect {
struct CopyJournal {  // answered with CopyMade
  NodeId node;
};
struct SendCopy {  // the one just made
  NodeId node;
};
struct Send {
  NodeId node;
  std::uint64_t first = 0, last = 0;
};
struct Safe {  // every promise up to this entry may be acted upon
  std::uint64_t up_to = 0;
};
}  // namespace mirror_effect
using MirrorEffect =
    std::variant<mirror_effect::CopyJournal, mirror_effect::SendCopy, mirror_effect::Send, mirror_effect::Safe>;
using MirrorEffects = std::vector<MirrorEffect>;

class JournalMirrors {
 public:
  MirrorEffects step(const MirrorEvent& event);

  // The shell keeps entries from here on.
  std::uint64_t needed_from() const;
  std::set<NodeId> nodes() const;    // that are mirrors,
  std::set<NodeId> keepers() const;  // and of them, who has said so

 private:
  enum class Phase : std::uint8_t { copying, following };
  struct Mirror {
    Phase phase = Phase::copying;  // until the whole copy is sent
    bool in_flight = false;
    std::uint64_t sent = 0, kept = 0;
  };

  void on(const mirror_event::NodeCame& e);
  void on(const mirror_event::NodeWent& e);
  void on(const mirror_event::Written& e);
  void on(const mirror_event::CopyMade& e);
  void on(const mirror_event::Kept& e);
  void choose();
  void send_on(NodeId node, Mirror& mirror);
  void settle();

  std::map<NodeId, std::string> candidates_;  // nodes that are no mirrors, and their racks
  std::map<NodeId, std::string> racks_;       // of mirrors
  std::map<NodeId, Mirror> mirrors_;
  std::uint64_t newest_ = 0, safe_ = 0;
  MirrorEffects effects_;
};

}  // namespace kintsugi
