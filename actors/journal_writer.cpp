#include "actors/journal_writer.hpp"

#include <caf/send.hpp>

#include <utility>
#include <variant>

#include "base/assert.hpp"
#include "base/clock.hpp"

namespace kintsugi::actors {

namespace {

struct HeldJournal {
  std::shared_ptr<Journal> journal;
  caf::actor owner;
  bool mirrored = false;
  std::uint64_t number = 1;  // of the newest entry; its start was the first
  bool failed = false;
  std::variant<std::monostate, WriteDown, Promise, CopyTheJournal> in_hand;
};

class JournalWriter final : public Body {
 public:
  JournalWriter(Life life, HeldJournal& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    carry_out();
    return {
        [this](const WriteDown& m) { take(m); },
        [this](const Promise& m) { take(m); },
        [this](const CopyTheJournal& m) { take(m); },
        [this](const JournalEnd&) { quit(); },
    };
  }

  void on_end() override { held_.owner = nullptr; }

 private:
  template <class Order>
  void take(const Order& order) {
    held_.in_hand = order;
    carry_out();
  }

  void carry_out() {
    std::visit([this](const auto& order) { carry_out(order); }, held_.in_hand);
    held_.in_hand = std::monostate{};
  }

  void carry_out(std::monostate) {}
  void carry_out(const WriteDown& m) {
    if (append(m.entry, Durability::buffered)) tell_owner(m.entry, nullptr, 0);
  }
  void carry_out(const Promise& m) {
    if (!append(m.entry, Durability::durable)) return;
    if (held_.mirrored)
      tell_owner(m.entry, m.whom, m.number);
    else
      send(m.whom, PromiseKept{m.number});
  }
  void carry_out(const CopyTheJournal& m) {
    if (held_.failed || !held_.mirrored) return;
    const Journal& journal = *held_.journal;
    const Result<JournalContents> contents = read_journal(journal.directory());
    if (!contents) return fail(contents.error());
    send(held_.owner,
         JournalCopied{m.node, held_.number,
                       std::make_shared<const std::vector<JournalPiece>>(journal_pieces(
                           journal.cluster_id(), {journal.epoch(), held_.number}, compacted(contents->entries)))});
  }

  bool append(const JournalEntry& entry, Durability durability) {
    if (held_.failed) return false;
    if (!held_.journal) return true;
    const Result<void> appended = held_.journal->append(entry, durability);
    if (appended) return true;
    fail(appended.error());
    return false;
  }

  void fail(const Error& why) {
    held_.failed = true;
    send(held_.owner, JournalFailed{why});
  }

  void tell_owner(const JournalEntry& entry, const caf::actor& whom, std::uint64_t promise) {
    if (!held_.mirrored) return;
    send(held_.owner,
         Journaled{++held_.number, std::make_shared<const std::vector<std::byte>>(encode_entry(entry)), whom, promise});
  }

  HeldJournal& held_;
};

}  // namespace

caf::actor spawn_journal_writer(Place place, std::shared_ptr<Journal> journal, bool mirrored) {
  auto held = std::make_shared<HeldJournal>();
  held->journal = std::move(journal);
  held->owner = place.parent;
  held->mirrored = mirrored;
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
