// Writes the supervisor's journal (engine/telemetry/journal.hpp). A detached actor: it waits for the disk, and no mailbox
// that answers pings may. Entries reach the file in the order in which they come here. Where nodes keep it as well
// (actors/mirrors.hpp), its owner hears of every entry, and answers promises.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <deque>
#include <functional>
#include <memory>

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
};

struct CopyTheJournal {  // answered with JournalCopied, to its owner
  NodeId node;
};

struct JournalEnd {};  // after all that was sent before

// --- from the writer ------------------------------------------------------------------------------------------------
struct PromiseKept {};
struct JournalFailed {  // to its owner, once: nothing is written and no promise is answered from now on
  Error why;
};

struct
    Journaled {  // to its owner: on the disk if it was promised; numbered from 1, which is the supervisor's own start
  std::uint64_t number = 0;
  std::shared_ptr<const std::vector<std::byte>> entry;  // encode_entry
  caf::actor whom;                                      // owed a PromiseKept; may be none
};
struct JournalCopied {  // of all entries up to `number`, compacted; before any later one is Journaled
  NodeId node;
  std::uint64_t number = 0;
  std::shared_ptr<const std::vector<JournalPiece>> pieces;
};

// `journal` may be null: then nothing is kept, and every promise is answered (a cluster that ends with its process).
// `mirrored`: the owner answers promises.
caf::actor spawn_journal_writer(caf::actor_system& system, std::shared_ptr<Journal> journal, caf::actor owner,
                                bool mirrored);

// What happens now.
JournalEntry entry_now(decltype(JournalEntry::what) what);

// What waits for promises to be kept, in order. Owned by the actor that makes them.
class Promises {
 public:
  // `then` runs once `what` is on the disk. `self`: who owns this and calls kept() for each PromiseKept.
  void make(const caf::actor& writer, const caf::actor& self, decltype(JournalEntry::what) what,
            std::function<void()> then);
  void kept();
  // `then` runs after what was promised so far; at once if all of it is kept.
  void in_turn(std::function<void()> then);

 private:
  std::deque<std::function<void()>> waiting_;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::WriteDown)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Promise)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JournalEnd)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::CopyTheJournal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Journaled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JournalCopied)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::PromiseKept)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JournalFailed)
