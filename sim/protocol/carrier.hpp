// A rank's end of the data plane in one generation, and how its one thread of work waits: for a message, for the release of
// what it lent, or for its own computing.
#pragma once

#include <coroutine>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "sim/protocol/fabric.hpp"

namespace kintsugi::sim::protocol {

// What was lent and not released yet.
using Outbox = std::shared_ptr<std::uint32_t>;
inline Outbox make_outbox() {
  return std::make_shared<std::uint32_t>(0);
}

// Fenced by construction: it takes nothing of another generation.
struct Carrier {
  Generation generation;
  std::map<std::pair<RankId, transport::MessageKey>, Parcel> inbox;
  std::optional<Error> error;  // cancelled, or a peer is gone: ends every wait, present and future
  std::set<RankId> peers;      // once connected

  void fail(Error why) {
    if (!error) error = std::move(why);
  }
};

// The work of one rank waits in one place at a time.
class Waiting {
 public:
  Waiting(Processes& processes, Fabric& fabric, Duration limit)
      : processes_(processes), fabric_(fabric), limit_(limit) {}

  struct ForParcel {
    Waiting& w;
    Carrier& carrier;
    RankId from;
    transport::MessageKey key;
    bool await_ready() const { return carrier.error || carrier.inbox.contains({from, key}); }
    void await_suspend(std::coroutine_handle<> h) { w.suspend(h, Kind::parcel, &carrier, {from, key}, nullptr); }
    // What was awaited is released at once: nothing is kept in place.
    Result<Parcel> await_resume();
  };
  struct ForRelease {
    Waiting& w;
    Carrier& carrier;
    Outbox outbox;
    bool await_ready() const { return *outbox == 0 || carrier.error; }
    void await_suspend(std::coroutine_handle<> h) { w.suspend(h, Kind::release, &carrier, {}, outbox); }
    Result<void> await_resume() {
      if (carrier.error) return *carrier.error;
      return {};
    }
  };
  struct ForTime {
    Waiting& w;
    Duration takes;
    bool await_ready() const { return takes <= Duration{}; }
    void await_suspend(std::coroutine_handle<> h) { w.suspend_for(h, takes); }
    void await_resume() {}
  };

  ForParcel parcel(Carrier& carrier, RankId from, const transport::MessageKey& key) {
    return {*this, carrier, from, key};
  }
  ForRelease released(Carrier& carrier, const Outbox& outbox) { return {*this, carrier, outbox}; }
  ForTime time(Duration takes) { return {*this, takes}; }

  // Something may have come true: goes on if so.
  void look();
  void forget() { kind_ = Kind::none; }
  // Nothing goes on until it is let go again.
  void hang() { hangs_ = true; }
  void let_go();
  void set_pid(Pid pid) { pid_ = pid; }

 private:
  enum class Kind : std::uint8_t { none, parcel, release, time };
  enum EventKind : std::uint32_t { kComputed = 20, kOverdue };
  using Awaited = std::pair<RankId, transport::MessageKey>;

  void suspend(std::coroutine_handle<> h, Kind kind, Carrier* carrier, const Awaited& awaited, const Outbox& outbox);
  void suspend_for(std::coroutine_handle<> h, Duration takes);
  void watch(Instant due);
  void resume();

  Processes& processes_;
  Fabric& fabric_;
  const Duration limit_;
  Pid pid_ = 0;
  Kind kind_ = Kind::none;
  std::coroutine_handle<> handle_;
  Carrier* carrier_ = nullptr;
  Awaited awaited_;
  Outbox outbox_;
  Instant since_;
  bool watched_ = false;
  bool hangs_ = false, is_due_ = false;
};

}  // namespace kintsugi::sim::protocol
