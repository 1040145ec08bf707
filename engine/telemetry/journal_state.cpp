#include "engine/telemetry/journal_state.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace kintsugi {

using namespace journaled;

namespace {

struct Fold {
  RestartState& state;
  std::int64_t wall_ns = 0;

  void operator()(const Started& e) const {
    state.epoch = std::max(state.epoch, e.epoch);
    state.tenures.push_back({e.epoch, incarnation_of(wall_ns)});
  }
  void operator()(const NodeJoined& e) const {
    state.nodes.insert_or_assign(e.node, e);
    state.next_node = std::max(state.next_node, NodeId{e.node.value + 1});
  }
  void operator()(const NodeLeft& e) const { state.nodes.erase(e.node); }
  void operator()(const Submitted& e) const {
    state.jobs.insert_or_assign(e.job, RestartJob{.submitted = e, .submitted_ns = wall_ns});
    state.next_job = std::max(state.next_job, JobId{e.job.value + 1});
  }
  void operator()(const Ended& e) const {
    state.jobs.erase(e.job);
    state.ended.push_back(e);
  }
  void operator()(const GenerationMade& e) const {
    if (RestartJob* job = find(e.job)) job->generation = e;
  }
  void operator()(const Event&) const {}
  void operator()(const RecordSeen& e) const {
    if (RestartJob* job = find(e.job)) job->record = e;
  }
  void operator()(const IncidentOver& e) const {
    if (RestartJob* job = find(e.job)) job->incidents.push_back(e);
  }

  RestartJob* find(JobId id) const {
    const auto job = state.jobs.find(id);
    return job == state.jobs.end() ? nullptr : &job->second;
  }
};

// Walks entries from the newest to the oldest and says which to keep: of each subject the newest of each kind.
class Keeper {
 public:
  explicit Keeper(const RestartState& state) : state_(state) {}

  bool operator()(const Started&) { return tenures_++ < kKeptTenures; }
  bool operator()(const NodeJoined& e) { return keeps(e.node) && nodes_joined_.insert(e.node).second; }
  bool operator()(const NodeLeft& e) {
    return keeps(e.node) && !nodes_joined_.contains(e.node) && nodes_left_.insert(e.node).second;
  }
  bool operator()(const Submitted& e) { return keeps(e.job) && submitted_.insert(e.job).second; }
  bool operator()(const Ended& e) {
    if (ends_ == kKeptEndedJobs) return e.job == last_job() && ended_.insert(e.job).second;
    ++ends_;
    ended_.insert(e.job);
    return true;
  }
  bool operator()(const GenerationMade& e) { return keeps(e.job) && generations_.insert(e.job).second; }
  bool operator()(const RecordSeen& e) { return keeps(e.job) && records_.insert(e.job).second; }
  bool operator()(const IncidentOver& e) {
    return state_.jobs.contains(e.job) && incidents_over_[e.job]++ < kKeptIncidentsOver;
  }
  bool operator()(const Event& e) {
    if (events_ == kKeptEvents) return false;
    const std::pair incident(e.job, e.incident);
    if (e.incident != 0 && !incidents_.contains(incident)) {
      if (incidents_.size() == kKeptIncidents) return false;
      incidents_.insert(incident);
    }
    ++events_;
    return true;
  }

 private:
  // The last ones ever given stay, gone or not: their numbers must not be given again.
  NodeId last_node() const { return {state_.next_node.value - 1}; }
  JobId last_job() const { return {state_.next_job.value - 1}; }
  bool keeps(NodeId node) const { return state_.nodes.contains(node) || node == last_node(); }
  bool keeps(JobId job) const { return state_.jobs.contains(job) || ended_.contains(job); }

  const RestartState& state_;
  std::size_t tenures_ = 0;
  std::set<NodeId> nodes_joined_, nodes_left_;
  std::set<JobId> submitted_, ended_, generations_, records_;
  std::set<std::pair<JobId, std::uint32_t>> incidents_;
  std::map<JobId, std::size_t> incidents_over_;
  std::size_t events_ = 0, ends_ = 0;
};

template <class T>
void keep_newest(std::vector<T>& list, std::size_t count) {
  if (list.size() > count) list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(count));
}

}  // namespace

Incarnation incarnation_of(std::int64_t started_ns) {
  return {static_cast<std::uint64_t>(started_ns)};
}

RestartState restart_state(std::span<const JournalEntry> entries) {
  RestartState state;
  for (const JournalEntry& entry : entries) std::visit(Fold{state, entry.wall_ns}, entry.what);
  keep_newest(state.ended, kKeptEndedJobs);
  keep_newest(state.tenures, kKeptTenures);
  for (auto& [id, job] : state.jobs) keep_newest(job.incidents, kKeptIncidentsOver);
  return state;
}

std::vector<JournalEntry> compacted(std::span<const JournalEntry> entries) {
  const RestartState state = restart_state(entries);
  Keeper keeper(state);
  std::vector<JournalEntry> kept;
  for (std::size_t i = entries.size(); i-- > 0;) {
    if (std::visit(keeper, entries[i].what)) kept.push_back(entries[i]);
  }
  std::reverse(kept.begin(), kept.end());
  KINTSUGI_ASSERT_MSG(restart_state(kept) == state, "compaction lost what a restart needs");
  return kept;
}

}  // namespace kintsugi
