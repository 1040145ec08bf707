// A supervisor that takes over where the former one's state is gone (DESIGN C6, docs/decisions/0016): nodes dial it and say
// whom they served and how new a copy of the journal they keep. It goes on with the newest copy, once all nodes named there
// have come or have had their time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "engine/telemetry/journal_copy.hpp"
#include "engine/telemetry/journal_state.hpp"

namespace kintsugi {

// What a node says when it dials.
struct NodeClaim {
  Incarnation node;
  std::uint64_t cluster_id = 0;  // of whom it served; 0: nobody
  Tenure served;
  JournalStamp copy;
};

// A supervisor must not rule nodes that have served one it does not descend from: it lacks what that one promised.
enum class Claim : std::uint8_t {
  known,     // it served this supervisor or one before it, or nobody, or another cluster's, which it says itself
  newer,     // it has served a later one: whoever asks has been succeeded and must go
  stranger,  // it has served one of this cluster that lost
};
Claim judge(const NodeClaim& claim, std::uint64_t cluster_id, const Tenure& self, const std::vector<Tenure>& before);

// Epochs of those that take over are far above those of restarts, so that it shows who is the later one even when the
// former supervisor comes back and starts again and again.
constexpr std::uint32_t kTakeoverEpochs = 1000;

// Until a node with a copy comes: as long as nodes look for a supervisor, and the time to find the way.
constexpr Duration kTakeoverPatience = seconds(660);
// For the others, once a copy is here: nodes dial every few seconds.
constexpr Duration kTakeoverGather = seconds(15);

using DialerId = std::uint64_t;

namespace takeover_event {
struct Came {
  DialerId dialer = 0;
  NodeClaim claim;
};
struct Went {
  DialerId dialer = 0;
};
struct CopyRead {  // whole, as asked for
  DialerId dialer = 0;
  JournalStamp stamp;
  std::set<Incarnation> nodes;  // that had joined and not left
  std::vector<Tenure> tenures;
};
struct DeadlinePassed {};  // the one armed last
}  // namespace takeover_event
using TakeoverEvent =
    std::variant<takeover_event::Came, takeover_event::Went, takeover_event::CopyRead, takeover_event::DeadlinePassed>;

namespace takeover_effect {
struct AskForCopy {
  DialerId dialer = 0;
};
struct Refuse {
  DialerId dialer = 0;
  std::string why;
};
struct Take {  // the copy read of this dialer; the last effect of all
  DialerId dialer = 0;
  std::uint32_t least_epoch = 0;
  std::vector<Tenure> also_before;  // served by nodes that came, and not in the copy
  std::size_t absent = 0;           // nodes named in the copy that have not come
};
struct GiveUp {  // likewise
  std::string why;
};
struct ArmDeadline {
  Instant at;
};
}  // namespace takeover_effect
using TakeoverEffect = std::variant<takeover_effect::AskForCopy, takeover_effect::Refuse, takeover_effect::Take,
                                    takeover_effect::GiveUp, takeover_effect::ArmDeadline>;
using TakeoverEffects = std::vector<TakeoverEffect>;

class Takeover {
 public:
  TakeoverEffects start(Instant now);
  TakeoverEffects step(const TakeoverEvent& event, Instant now);

 private:
  struct Copy {
    DialerId dialer = 0;
    JournalStamp stamp;
    std::set<Incarnation> nodes;
    std::vector<Tenure> tenures;
  };

  void on(const takeover_event::Came& e, Instant now);
  void on(const takeover_event::Went& e, Instant now);
  void on(const takeover_event::CopyRead& e, Instant now);
  void on(const takeover_event::DeadlinePassed& e, Instant now);
  void ask_for_newest();
  bool is_complete() const;
  std::size_t absent() const;
  void take();

  std::map<DialerId, NodeClaim> here_;
  std::optional<std::uint64_t> cluster_id_;  // of the first that came
  std::optional<DialerId> asked_;
  std::optional<Copy> best_;
  bool over_ = false;
  TakeoverEffects effects_;
};

}  // namespace kintsugi
