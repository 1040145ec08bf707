#include "actors/journal_writer.hpp"

#include <caf/send.hpp>

#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "base/clock.hpp"

namespace kintsugi::actors {

namespace {

struct HeldJournal {
  std::shared_ptr<Journal> journal;
  caf::actor owner;
  bool failed = false;
  std::optional<Promise> in_hand;  // to nobody: only to be written down
};

class JournalWriter final : public Body {
 public:
  JournalWriter(Life life, HeldJournal& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    carry_out();
    return {
        [this](const WriteDown& m) {
          take({m.entry, nullptr, 0});
        },
        [this](const Promise& m) { take(m); },
        [this](const JournalEnd&) { quit(); },
    };
  }

  void on_end() override { held_.owner = nullptr; }

 private:
  void take(Promise what) {
    held_.in_hand = std::move(what);
    carry_out();
  }

  void carry_out() {
    if (!held_.in_hand) return;
    const Promise& p = *held_.in_hand;
    if (append(p.entry, p.whom ? Durability::durable : Durability::buffered) && p.whom) {
      send(p.whom, PromiseKept{p.number});
    }
    held_.in_hand.reset();
  }

  bool append(const JournalEntry& entry, Durability durability) {
    if (held_.failed) return false;
    if (!held_.journal) return true;
    const Result<void> appended = held_.journal->append(entry, durability);
    if (appended) return true;
    held_.failed = true;
    send(held_.owner, JournalFailed{appended.error()});
    return false;
  }

  HeldJournal& held_;
};

}  // namespace

caf::actor spawn_journal_writer(Place place, std::shared_ptr<Journal> journal) {
  auto held = std::make_shared<HeldJournal>(HeldJournal{std::move(journal), place.parent, false, std::nullopt});
  return spawn_detached(std::move(place), bodies_of<JournalWriter>(std::move(held)));
}

void Promises::make(const caf::actor& writer, const caf::actor& self, decltype(JournalEntry::what) what,
                    std::function<void()> then) {
  waiting_.push_back(std::move(then));
  caf::anon_send(writer, Promise{entry_now(std::move(what)), self, next_++});
}

void Promises::kept(const PromiseKept& which) {
  if (which.number < first_) return;  // made by an incarnation before, or told twice
  KINTSUGI_ASSERT(which.number == first_ && !waiting_.empty());
  ++first_;
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
