// The data plane: messages between ranks, matched by key, in any order. As a reliable transport shows it, nothing is lost while
// the connection lives: what a bad path loses comes late, or the connection breaks and both ends know.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/control/step_commit.hpp"
#include "sim/protocol/marks.hpp"
#include "sim/world/processes.hpp"
#include "transport/point_to_point.hpp"

namespace kintsugi::sim::protocol {

struct Payload {
  Sum sum;
  // Lent memory: read when it is taken, as long as its owner lives; `sum` is what it was when it was lent.
  std::shared_ptr<const Mark> lent_at;
  std::shared_ptr<const Contribution> votes;
  std::shared_ptr<const DecisionRecord> record;
  Digest digest;
};

struct Parcel {
  RankId from, to;
  Generation generation;
  transport::MessageKey key;
  Payload payload;
  std::shared_ptr<std::uint32_t> lent;  // the sender's count of what is not released yet
};

class ParcelUser {
 public:
  virtual ~ParcelUser() = default;
  virtual void on_parcel(const Parcel& parcel) = 0;
  virtual void on_released() = 0;
  // The connection to `peer` broke.
  virtual void on_peer_gone(RankId peer) = 0;
};

class Fabric {
 public:
  enum EventKind : std::uint32_t { kParcel = 10, kReleased, kPeerGone };

  Fabric(Processes& processes, std::uint64_t seed) : processes_(processes), draws_(seed, 0x46414252) {}

  // False: a rank of that number was there before.
  bool attach(RankId rank, Pid pid, ParcelUser& user) { return users_.emplace(rank, User{pid, &user}).second; }
  Pid pid_of(RankId rank) const { return users_.at(rank).pid; }
  bool is_alive(RankId rank) const { return users_.contains(rank) && processes_.is_alive(pid_of(rank)); }

  void send(Parcel parcel);
  void release(const Parcel& parcel);
  // To every living rank on other machines, which know by their connections; `silent`: they do not.
  void ended(RankId rank);

  // --- faults: between machines ---------------------------------------------------------------------------------------
  void cut(MachineId from, MachineId to) { cut_.insert({from, to}); }
  void mend(MachineId from, MachineId to);
  void break_connection(RankId a, RankId b);
  void repeat_next() { repeat_next_ = true; }
  std::vector<RankId> living() const;
  std::size_t most_under_way() const { return most_under_way_; }

 private:
  struct User {
    Pid pid;
    ParcelUser* user;
  };
  struct Held {
    Pid from, to;
    std::uint32_t kind;
    std::uint64_t tag;
    std::function<void()> act;
  };

  void carry(Pid from, Pid to, std::uint32_t kind, std::uint64_t tag, std::function<void()> act);

  Processes& processes_;
  Draws draws_;
  std::map<RankId, User> users_;
  std::set<std::pair<MachineId, MachineId>> cut_;
  std::vector<Held> held_;
  bool repeat_next_ = false;
  std::size_t most_under_way_ = 0;
};

}  // namespace kintsugi::sim::protocol
