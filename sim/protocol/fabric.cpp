#include "sim/protocol/fabric.hpp"

#include <utility>

namespace kintsugi::sim::protocol {

namespace {

constexpr Duration kFastestNear{20'000}, kSlowestNear{120'000};   // inside a machine
constexpr Duration kFastestFar{100'000}, kSlowestFar{1'500'000};  // between machines

std::uint64_t tag_of(const Parcel& p) {
  return fold(fold(fold(p.from.value, static_cast<std::uint64_t>(p.key.kind)), p.key.step.value),
              std::uint64_t{p.key.item} << 32 | p.key.part);
}

}  // namespace

void Fabric::carry(Pid from, Pid to, std::uint32_t kind, std::uint64_t tag, std::function<void()> act) {
  const MachineId here = processes_.machine_of(from), there = processes_.machine_of(to);
  if (cut_.contains({here, there})) {
    held_.push_back({from, to, kind, tag, std::move(act)});
    most_under_way_ = std::max(most_under_way_, held_.size());
    return;
  }
  const Duration takes =
      here == there ? draws_.between(kFastestNear, kSlowestNear) : draws_.between(kFastestFar, kSlowestFar);
  processes_.post(to, processes_.now() + takes * processes_.slowness(from), kind, tag, std::move(act));
}

void Fabric::send(Parcel parcel) {
  const auto at = users_.find(parcel.to);
  KINTSUGI_ASSERT_MSG(at != users_.end(), "a parcel to a rank that never was");
  const Pid from = pid_of(parcel.from), to = at->second.pid;
  const std::uint64_t tag = tag_of(parcel);
  const auto arrives = [user = at->second.user, parcel = std::make_shared<const Parcel>(std::move(parcel))] {
    user->on_parcel(*parcel);
  };
  if (std::exchange(repeat_next_, false)) carry(from, to, kParcel, tag, arrives);
  carry(from, to, kParcel, tag, arrives);
}

void Fabric::release(const Parcel& parcel) {
  if (!parcel.lent) return;
  const User& owner = users_.at(parcel.from);
  carry(pid_of(parcel.to), owner.pid, kReleased, parcel.from.value, [user = owner.user, lent = parcel.lent] {
    KINTSUGI_ASSERT(*lent > 0);
    --*lent;
    user->on_released();
  });
}

void Fabric::ended(RankId rank) {
  const MachineId machine = processes_.machine_of(pid_of(rank));
  for (const auto& [peer, user] : users_) {
    if (peer == rank || !processes_.is_alive(user.pid) || processes_.machine_of(user.pid) == machine) continue;
    const Duration takes = draws_.between(kFastestFar, kSlowestFar * 4);
    processes_.post(user.pid, processes_.now() + takes, kPeerGone, rank.value,
                    [u = user.user, rank] { u->on_peer_gone(rank); });
  }
}

void Fabric::break_connection(RankId a, RankId b) {
  const auto tell = [&](RankId whom, RankId of) {
    const User& user = users_.at(whom);
    if (!processes_.is_alive(user.pid)) return;
    processes_.post(user.pid, processes_.now() + draws_.between(kFastestFar, kSlowestFar), kPeerGone, of.value,
                    [u = user.user, of] { u->on_peer_gone(of); });
  };
  tell(a, b);
  tell(b, a);
}

void Fabric::mend(MachineId from, MachineId to) {
  cut_.erase({from, to});
  for (Held& h : std::exchange(held_, {})) carry(h.from, h.to, h.kind, h.tag, std::move(h.act));
}

std::vector<RankId> Fabric::living() const {
  std::vector<RankId> all;
  for (const auto& [rank, user] : users_) {
    if (processes_.is_alive(user.pid)) all.push_back(rank);
  }
  return all;
}

}  // namespace kintsugi::sim::protocol
