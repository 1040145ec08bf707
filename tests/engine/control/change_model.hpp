// A small model of everything around a job's machine, for exploring all orders of events: nodes, ranks that keep the
// protocol, messages in flight, faults. State is reduced to what the protocol is about: which copy of which shard is at
// which step, has its gradient, and who knows which record.
//
// Links keep order: supervisor to rank, supervisor to node, and all that a node sends. Everything else may happen in any
// order, and a world is what may happen next. Worlds are values; machines, messages and plans in them are numbers in
// tables that only grow.
#pragma once

#include <array>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/control/job_machine.hpp"

namespace kintsugi::testing {

// Values by number, each once. `Bucket` tells most of them apart.
template <class T, class Bucket>
class Table {
 public:
  std::uint32_t number(const T& value) {
    std::vector<std::uint32_t>& bucket = buckets_[Bucket{}(value)];
    for (const std::uint32_t n : bucket) {
      if (values_[n] == value) return n;
    }
    bucket.push_back(static_cast<std::uint32_t>(values_.size()));
    values_.push_back(value);
    return bucket.back();
  }
  const T& operator[](std::uint32_t number) const { return values_.at(number); }
  std::size_t size() const { return values_.size(); }

 private:
  std::vector<T> values_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> buckets_;
};

constexpr std::uint32_t kNothing = ~std::uint32_t{0};
constexpr std::uint32_t kShards = 4;

// To the supervisor.
struct Up {
  enum class Kind : std::uint8_t { rank_up, reported, node_reported, prepared, step_final, failed, down, node_lost };
  Kind kind = Kind::rank_up;
  RankId rank;
  NodeId node;
  Generation generation;
  std::vector<RankReport> reports;
  std::uint32_t order = kNothing;  // that it prepared; of a report: the last one, if it was told
  std::optional<DecisionRecord> record;
  bool operator==(const Up&) const = default;
};

// From the supervisor.
struct Down {
  enum class Kind : std::uint8_t { fence, prepare, intend, resume, kill };
  Kind kind = Kind::fence;
  std::uint32_t generation = 0;    // counter
  std::uint32_t order = kNothing;  // what to prepare
  RankId rank;                     // to kill
  auto operator<=>(const Down&) const = default;
};

struct Order {
  Plan plan;
  Transition transition;
  bool operator==(const Order&) const = default;
};

struct ModelCopy {
  std::uint32_t version = kNothing;
  bool gradient = false;  // of version + 1
};

struct ModelRank {
  enum class Phase : std::uint8_t { idle, preparing, prepared, running };
  NodeId node;
  bool alive = true, hung = false;
  bool announced = false;   // it has said hello
  bool complained = false;  // of a dead peer, in this generation
  Phase phase = Phase::idle;
  std::uint32_t promised = 0;  // generation counter: it accepts nothing lower
  std::uint32_t order = kNothing;
  std::uint32_t applied = 0;    // the step of its copies
  std::uint32_t voted = 0;      // the step it has voted for in this generation
  std::uint32_t ready = 0;      // the generation it says it is ready for
  std::uint32_t voted_for = 0;  // the same, at its vote
  std::optional<DecisionRecord> record;
  std::array<ModelCopy, kShards> copies;
  std::vector<Down> inbox;
};

struct ModelNode {
  bool lost = false;
  std::vector<Down> inbox;
  std::vector<std::uint32_t> outbox;  // Up
};

// What may hold of a whole world at one moment.
struct World {
  std::uint32_t machine = kNothing;
  std::uint64_t deadline = 0;
  std::vector<ModelRank> ranks;    // by RankId
  std::array<ModelNode, 2> nodes;  // by NodeId
  std::uint32_t faults = 0;        // that may still happen
  std::uint32_t reported = 0;      // the newest step told to people
  std::uint32_t fenced = 0;        // the newest generation's counter
  std::uint32_t planned = 0;       // the newest that was planned
  Digest digest() const;
};

struct ModelRules {
  std::uint32_t steps = 1;  // after which ranks have nothing more to do
  bool refill = true;       // new ranks come up while training goes on, not only when it waits for them
  bool hang = true;         // faults beside deaths of ranks and nodes
  bool dropped = true;      // what a lost node has sent may be lost with it
  bool counted = false;     // a rank that holds what its plan gives it is counted, one in each event
};

struct Happening {
  const char* what = "";
  std::uint32_t who = 0;
  World after;
};

class ChangeModel {
 public:
  explicit ChangeModel(ModelRules rules) : rules_(rules) {}

  // Three ranks on two nodes, two copies of every shard, training at step 0.
  World start();
  // All that may happen next. Fails the test where a rule is broken.
  std::vector<Happening> next(const World& world);
  // The job has stopped, or all steps are done and nothing is in flight; checks what must hold then.
  bool is_end(const World& world);
  std::size_t machine_states() const { return machines_.size(); }

 private:
  struct MachineBucket {
    std::uint64_t operator()(const JobMachine& m) const;
  };
  struct UpBucket {
    std::uint64_t operator()(const Up& u) const;
  };
  struct OrderBucket {
    std::uint64_t operator()(const Order& o) const { return o.plan.generation.counter; }
  };
  struct Reaction {
    std::uint32_t machine = kNothing;
    JobEffects effects;
  };

  using Happenings = std::vector<Happening>;

  JobEvent event_of(const Up& up);
  std::optional<JobEvent> counted(const Up& up);
  void feed(World& world, const JobEvent& event);
  const Reaction& react(std::uint32_t machine, std::uint32_t up);
  void settle(World& world);
  void carry_out(World& world, const JobEffects& effects);
  void check_order(const World& world, const Order& order) const;
  void check_loss(const World& world) const;

  void send(World& world, NodeId node, Up up);
  void to_ranks(World& world, const Down& down, const Plan* members);
  void node_reads(World& world, std::uint32_t node);
  void rank_reads(World& world, std::uint32_t rank);
  void prepare(World& world, std::uint32_t rank, const Down& down);
  RankReport inventory(const World& world, std::uint32_t rank) const;
  void kill(World& world, std::uint32_t rank);
  void lose(World& world, std::uint32_t node, bool dropped);

  void deliveries(const World& world, Happenings& out);
  void works(const World& world, std::uint32_t rank, Happenings& out);
  void votes(const World& world, std::uint32_t rank, Happenings& out);
  void completes(const World& world, std::uint32_t rank, Happenings& out);
  void faults(const World& world, Happenings& out);
  bool is_done(const World& world) const;
  bool can_reach(const World& world, std::uint32_t rank, std::uint32_t shard, std::uint64_t step) const;

  ModelRules rules_;
  Table<JobMachine, MachineBucket> machines_;
  Table<Up, UpBucket> ups_;
  Table<Order, OrderBucket> orders_;
  std::unordered_map<std::uint64_t, Reaction> reactions_;                        // (machine, Up)
  std::map<std::uint32_t, std::shared_ptr<const Plan>> plans_;                   // by order
  std::map<std::uint32_t, std::shared_ptr<const std::vector<Digest>>> digests_;  // by step
};

}  // namespace kintsugi::testing
