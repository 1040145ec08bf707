#include "sim/protocol/carrier.hpp"

#include <utility>

namespace kintsugi::sim::protocol {

Result<Parcel> Waiting::ForParcel::await_resume() {
  if (carrier.error) return *carrier.error;
  const auto at = carrier.inbox.find({from, key});
  KINTSUGI_ASSERT(at != carrier.inbox.end());
  Parcel parcel = std::move(at->second);
  carrier.inbox.erase(at);
  if (parcel.payload.lent_at && w.fabric_.is_alive(from)) parcel.payload.sum.mark = *parcel.payload.lent_at;
  w.fabric_.release(parcel);
  return parcel;
}

void Waiting::suspend(std::coroutine_handle<> h, Kind kind, Carrier* carrier, const Awaited& awaited,
                      const Outbox& outbox) {
  KINTSUGI_ASSERT_MSG(kind_ == Kind::none, "a rank waits in one place");
  kind_ = kind;
  handle_ = h;
  carrier_ = carrier;
  awaited_ = awaited;
  outbox_ = outbox;
  since_ = processes_.now();
  if (!std::exchange(watched_, true)) watch(since_ + limit_);
}

// One event at a time is under way, however many waits there are.
void Waiting::watch(Instant due) {
  processes_.post(pid_, due, kOverdue, 0, [this] {
    watched_ = false;
    if (kind_ != Kind::parcel && kind_ != Kind::release) return;
    if (processes_.now() < since_ + limit_) {
      watched_ = true;
      return watch(since_ + limit_);
    }
    carrier_->fail({ErrorAction::end_generation, "a peer said nothing for as long as a step may take"});
    look();
  });
}

void Waiting::suspend_for(std::coroutine_handle<> h, Duration takes) {
  KINTSUGI_ASSERT_MSG(kind_ == Kind::none, "a rank waits in one place");
  kind_ = Kind::time;
  handle_ = h;
  processes_.post(pid_, processes_.now() + takes * processes_.slowness(pid_), kComputed, 0, [this] {
    if (kind_ == Kind::time) resume();
  });
}

void Waiting::look() {
  if (kind_ == Kind::parcel && (carrier_->error || carrier_->inbox.contains(awaited_))) return resume();
  if (kind_ == Kind::release && (carrier_->error || *outbox_ == 0)) resume();
}

void Waiting::let_go() {
  hangs_ = false;
  if (std::exchange(is_due_, false) && kind_ == Kind::time) return resume();
  look();
}

void Waiting::resume() {
  if (hangs_) {
    is_due_ = kind_ == Kind::time;
    return;
  }
  kind_ = Kind::none;
  std::exchange(handle_, {}).resume();
}

}  // namespace kintsugi::sim::protocol
