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
  JournalWriter(caf::actor_config& config, std::shared_ptr<Journal> journal, caf::actor owner)
      : caf::event_based_actor(config), journal_(std::move(journal)), owner_(std::move(owner)) {}

  const char* name() const override { return "journal writer"; }

  caf::behavior make_behavior() override {
    return {
        [this](const WriteDown& m) { append(m.entry, Durability::buffered); },
        [this](const Promise& m) {
          if (append(m.entry, Durability::durable)) send(m.whom, PromiseKept{});
        },
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
    failed_ = true;
    send(owner_, JournalFailed{appended.error()});
    return false;
  }

  const std::shared_ptr<Journal> journal_;
  caf::actor owner_;
  bool failed_ = false;
};

}  // namespace

caf::actor spawn_journal_writer(caf::actor_system& system, std::shared_ptr<Journal> journal, caf::actor owner) {
  return system.spawn<JournalWriter, caf::detached>(std::move(journal), std::move(owner));
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
