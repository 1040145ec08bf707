// Writes the supervisor's journal (engine/telemetry/journal.hpp). A detached actor: it waits for the disk, and no mailbox
// that answers pings may. Entries reach the file in the order in which they come here. Where nodes keep it as well
// (actors/mirrors.hpp), its owner hears of every entry, and answers promises. The next incarnation begins with what the one before
// had in hand: an entry that is in the file twice is as good as once, and no promise stays unanswered.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <deque>
#include <functional>
#include <memory>

#include "actors/supervised.hpp"
#include "engine/telemetry/journal.hpp"
#include "engine/telemetry/journal_copy.hpp"

namespace kintsugi::actors {

// --- to the writer --------------------------------------------------------------------------------------------------
struct WriteDown {  // in its time: it survives this process at once, the machine with the next promise
  JournalEntry entry;
};
struct Promise {  // answered with PromiseKept once it is on the disk, in the order of the promises of one sender
  JournalEntry entry;
  caf::actor whom;
  std::uint64_t number = 0;  // of whom makes it
};

struct CopyTheJournal {  // answered with JournalCopied, to its owner
  NodeId node;
};

struct JournalEnd {};  // after all that was sent before

// --- from the writer ------------------------------------------------------------------------------------------------
struct PromiseKept {
  std::uint64_t number = 0;
};
struct JournalFailed {  // to its owner, once: nothing is written and no promise is answered from now on
  Error why;
};

struct
    Journaled {  // to its owner: on the disk if it was promised; numbered from 1, which is the supervisor's own start
  std::uint64_t number = 0;
  std::shared_ptr<const std::vector<std::byte>> entry;  // encode_entry
  caf::actor whom;                                      // owed a PromiseKept; may be none
  std::uint64_t promise = 0;                            // its number
};
struct JournalCopied {  // of all entries up to `number`, compacted; before any later one is Journaled
  NodeId node;
  std::uint64_t number = 0;
  std::shared_ptr<const std::vector<JournalPiece>> pieces;
};

// `journal` may be null: then nothing is kept, and every promise is answered (a cluster that ends with its process).
// `mirrored`: the owner answers promises.
caf::actor spawn_journal_writer(Place place, std::shared_ptr<Journal> journal, bool mirrored);

// What happens now.
JournalEntry entry_now(decltype(JournalEntry::what) what);

// What waits for promises to be kept, in order. Owned by the incarnation that makes them.
class Promises {
 public:
  // `incarnation`: of its owner. What an earlier one was promised is nothing to this one.
  explicit Promises(std::uint32_t incarnation) : next_(std::uint64_t{incarnation} << 32), first_(next_) {}

  // `then` runs once `what` is on the disk. `self`: whose shell gets PromiseKept, for which kept() is called.
  void make(const caf::actor& writer, const caf::actor& self, decltype(JournalEntry::what) what,
            std::function<void()> then);
  void kept(const PromiseKept& which);
  // `then` runs after what was promised so far; at once if all of it is kept.
  void in_turn(std::function<void()> then);

 private:
  std::uint64_t next_;                         // number
  std::uint64_t first_;                        // that waits
  std::deque<std::function<void()>> waiting_;  // numbers first_, first_ + 1, ...
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::WriteDown)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Promise)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::CopyTheJournal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Journaled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JournalCopied)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JournalEnd)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::PromiseKept)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JournalFailed)
