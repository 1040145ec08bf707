#include "actors/journal_writer.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <utility>

#include "base/assert.hpp"
#include "base/clock.hpp"

namespace kintsugi::actors {

namespace {

class JournalWriter final : public caf::event_based_actor {
 public:
  JournalWriter(caf::actor_config& config, std::shared_ptr<Journal> journal, caf::actor owner, bool mirrored)
      : caf::event_based_actor(config), journal_(std::move(journal)), owner_(std::move(owner)), mirrored_(mirrored) {}

  const char* name() const override { return "journal writer"; }

  caf::behavior make_behavior() override {
    return {
        [this](const WriteDown& m) {
          if (append(m.entry, Durability::buffered)) tell_owner(m.entry, nullptr);
        },
        [this](const Promise& m) {
          if (!append(m.entry, Durability::durable)) return;
          if (mirrored_)
            tell_owner(m.entry, m.whom);
          else
            send(m.whom, PromiseKept{});
        },
        [this](const CopyTheJournal& m) { copy_for(m.node); },
        [this](const JournalEnd&) { quit(); },
    };
  }

  void on_exit() override { owner_ = nullptr; }

 private:
  bool append(const JournalEntry& entry, Durability durability) {
    if (failed_) return false;
    if (!journal_) return true;
    const Result<void> appended = journal_->append(entry, durability);
    if (appended) return true;
    fail(appended.error());
    return false;
  }

  void fail(const Error& why) {
    failed_ = true;
    send(owner_, JournalFailed{why});
  }

  void tell_owner(const JournalEntry& entry, const caf::actor& whom) {
    if (!mirrored_) return;
    send(owner_, Journaled{++number_, std::make_shared<const std::vector<std::byte>>(encode_entry(entry)), whom});
  }

  void copy_for(NodeId node) {
    if (failed_ || !mirrored_) return;
    const Result<JournalContents> contents = read_journal(journal_->directory());
    if (!contents) return fail(contents.error());
    send(owner_,
         JournalCopied{node, number_,
                       std::make_shared<const std::vector<JournalPiece>>(journal_pieces(
                           journal_->cluster_id(), {journal_->epoch(), number_}, compacted(contents->entries)))});
  }

  const std::shared_ptr<Journal> journal_;
  caf::actor owner_;
  const bool mirrored_;
  std::uint64_t number_ = 1;  // of the newest entry; its start was the first
  bool failed_ = false;
};

}  // namespace

caf::actor spawn_journal_writer(caf::actor_system& system, std::shared_ptr<Journal> journal, caf::actor owner,
                                bool mirrored) {
  return system.spawn<JournalWriter, caf::detached>(std::move(journal), std::move(owner), mirrored);
}

void Promises::make(const caf::actor& writer, const caf::actor& self, decltype(JournalEntry::what) what,
                    std::function<void()> then) {
  waiting_.push_back(std::move(then));
  caf::anon_send(writer, Promise{entry_now(std::move(what)), self});
}

void Promises::kept() {
  KINTSUGI_ASSERT(!waiting_.empty());
  const std::function<void()> then = std::move(waiting_.front());
  waiting_.pop_front();
  then();
}

void Promises::in_turn(std::function<void()> then) {
  if (waiting_.empty()) return then();
  waiting_.back() = [before = std::move(waiting_.back()), then = std::move(then)] {
    before();
    then();
  };
}

JournalEntry entry_now(decltype(JournalEntry::what) what) {
  return {wall_clock_ns(), std::move(what)};
}

}  // namespace kintsugi::actors
