#include "actors/report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/plan/cost.hpp"

namespace kintsugi::actors {

namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN or infinity; a diverged loss is null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(float value) {
  return number(static_cast<double>(value));
}

Json plan_json(const Plan& plan) {
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages) {
    Json blocks = Json::array();
    for (const CellBlock& b : stage.blocks) {
      blocks.push_back({{"rank", b.rank.value}, {"lanes", {b.lanes.first, b.lanes.end}}});
    }
    stages.push_back({{"layers", {stage.layers.first, stage.layers.end}}, {"blocks", std::move(blocks)}});
  }
  Json nodes = Json::array();
  Json ranks = Json::array();
  for (const PlanRank& r : plan.ranks) {
    nodes.push_back(r.node.value);
    ranks.push_back(r.rank.value);
  }
  return {{"generation", to_string(plan.generation)},
          {"digest", to_hex(plan.digest())},
          {"ranks", std::move(ranks)},
          {"lanes", plan.lanes},
          {"failure_domains", plan.failure_domains()},
          {"rank_nodes", std::move(nodes)},
          {"stages", std::move(stages)},
          {"reason", plan.reason}};
}

Json account_json(const RankAccount& a) {
  Json peers = Json::array();
  for (const auto& [peer, t] : a.traffic) {
    peers.push_back({{"peer", peer.value}, {"bytes_sent", t.sent}, {"bytes_received", t.received}});
  }
  return {{"rank", a.rank.value},
          {"cells", a.cells},
          {"microbatches", a.microbatches},
          {"forward_again", a.forward_again},
          {"backward_again", a.backward_again},
          {"flops", a.flops},
          {"bytes_sent", a.bytes_sent},
          {"bytes_received", a.bytes_received},
          {"peers", std::move(peers)},
          {"peak_memory_bytes", a.peak_memory_bytes},
          {"parameter_bytes", a.parameter_bytes},
          {"state_bytes", a.state_bytes},
          {"replica_bytes", a.replica_bytes},
          {"compute_s", a.compute_seconds},
          {"wait_s", a.wait_seconds},
          {"peak_flops_per_second", a.peak_flops}};
}

Json incident_json(const IncidentReport& i, Instant began) {
  const auto at = [&](const std::optional<Instant>& instant) {
    return instant ? Json((*instant - began).seconds()) : Json(nullptr);
  };
  return {{"id", i.id},
          {"kind", i.kind},
          {"target", i.target},
          {"why", i.why},
          {"generation", to_string(i.generation)},
          {"restarts", i.restarts},
          {"detected_s", at(i.detected)},
          {"fenced_s", at(i.fenced)},
          {"resumed_s", at(i.resumed)},
          {"first_commit_s", at(i.first_commit)},
          {"lanes_recomputed", i.lanes_recomputed},
          {"bytes_moved", i.bytes_moved},
          {"steps_lost", i.steps_lost}};
}

}  // namespace

RankAccount read_account(schemas::RankAccount::Reader in) {
  RankAccount a;
  a.rank = {in.getRank()};
  a.cells = in.getCells();
  a.microbatches = in.getMicrobatches();
  a.forward_again = in.getForwardAgain();
  a.backward_again = in.getBackwardAgain();
  a.flops = in.getFlops();
  a.bytes_sent = in.getBytesSent();
  a.bytes_received = in.getBytesReceived();
  for (const auto t : in.getTraffic()) a.traffic[{t.getPeer()}] = {t.getBytesSent(), t.getBytesReceived()};
  a.peak_memory_bytes = in.getPeakMemoryBytes();
  a.parameter_bytes = in.getParameterBytes();
  a.state_bytes = in.getStateBytes();
  a.replica_bytes = in.getReplicaBytes();
  a.compute_seconds = in.getComputeSeconds();
  a.wait_seconds = in.getWaitSeconds();
  a.peak_flops = in.getPeakFlopsPerSecond();
  a.final_digest = {in.getFinalDigest().getHigh(), in.getFinalDigest().getLow()};
  return a;
}

void Report::planned(Plan plan, std::string kernel_variant) {
  plan_ = std::move(plan);
  kernel_variant_ = std::move(kernel_variant);
}

void Report::step_final(const DecisionRecord& record, double seconds, Instant now) {
  if (record.step <= whole_ && !steps_.contains(record.step)) return;  // left out by now, or before the job's first
  const auto [at, fresh] = steps_.try_emplace(record.step);
  StepLine& line = at->second;
  if (!fresh && (line.generation > record.generation || line.seconds > 0)) return;
  if (fresh) ++count_;
  productive_seconds_ += seconds - line.seconds;
  line = {record.loss,
          record.gradient_norm,
          record.learning_rate,
          record.outcome == Outcome::commit,
          record.previous_digest,
          record.generation,
          plan_ ? plan_->rank_count() : 0,
          record.failure_domains,
          seconds,
          fresh ? now : line.final_at};
  while (steps_.contains({whole_.value + 1})) ++whole_.value;
  if (steps_.size() > kReportedSteps) {
    whole_ = std::max(whole_, steps_.begin()->first);
    steps_.erase(steps_.begin());
    ++left_out_;
  }
}

std::optional<Step> Report::gap() const {
  const auto next = steps_.upper_bound(whole_);
  if (next == steps_.end()) return std::nullopt;
  return Step{next->first.value - 1};
}

std::string Report::json(const std::string& version) const {
  const JobConfig& job = job_.config;
  const std::uint32_t ranks = plan_ ? plan_->rank_count() : 0;
  std::optional<Digest> final_digest;
  if (!accounts_.empty()) final_digest = accounts_.begin()->second.final_digest;

  Json steps = Json::array();
  std::vector<double> seconds;
  for (const auto& [step, s] : steps_) {
    // The vote of a step carries the digest of the state before it.
    std::optional<Digest> digest;
    if (const auto next = steps_.find({step.value + 1}); next != steps_.end()) digest = next->second.previous_digest;
    if (step == steps_.rbegin()->first) digest = final_digest;
    steps.push_back({{"step", step.value},
                     {"loss", number(s.loss)},
                     {"grad_norm", number(s.gradient_norm)},
                     {"digest", digest ? Json(to_hex(*digest)) : Json(nullptr)},
                     {"generation", to_string(s.generation)},
                     {"ranks", s.ranks},
                     {"seconds", s.seconds},
                     {"final_s", (s.final_at - began_).seconds()},
                     {"failure_domains", s.failure_domains},
                     {"learning_rate", s.learning_rate},
                     {"outcome", s.committed ? "commit" : "skip"}});
    seconds.push_back(s.seconds);
  }
  double median = 0;
  if (!seconds.empty()) {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
    median = seconds[seconds.size() / 2];
  }
  double peak = 0;
  bool all_measured = accounts_.size() == ranks && ranks > 0;
  Json per_rank = Json::array();
  for (const auto& [rank, account] : accounts_) {
    per_rank.push_back(account_json(account));
    peak += account.peak_flops;
    all_measured = all_measured && account.peak_flops > 0;
  }
  const double tokens_per_step = static_cast<double>(job.batch.tokens_per_step());
  const double flops = step_flops(ModelLayout(job.model), job.batch);
  const double trained = static_cast<double>(count_);
  const bool timed = productive_seconds_ > 0;

  Json out;
  out["job"] = job.name;
  out["job_identity"] = to_hex(job_identity(job));
  // What detected_s, final_s and the like count from: the supervisor's CLOCK_MONOTONIC, seconds.
  out["began_s"] = (began_ - Instant{}).seconds();
  out["steps"] = std::move(steps);
  if (left_out_ > 0) out["steps_left_out"] = left_out_;
  out["final_digest"] = final_digest ? Json(to_hex(*final_digest)) : Json(nullptr);
  out["tokens"] = count_ * static_cast<std::uint64_t>(job.batch.tokens_per_step());
  // Over all time spent in steps: setting up, saving and stopping are in goodput.lost_s. The median is robust against
  // the first steps and a busy machine.
  out["tokens_per_second"] = timed ? trained * tokens_per_step / productive_seconds_ : 0.0;
  out["tokens_per_second_median"] = median > 0 ? tokens_per_step / median : 0.0;
  out["step_flops"] = flops;
  out["mfu"] = timed && all_measured ? Json(flops * trained / productive_seconds_ / peak) : Json(nullptr);
  out["peak_flops_per_second"] = all_measured ? Json(peak) : Json(nullptr);
  Json incidents = Json::array();
  for (const IncidentReport& i : incidents_) incidents.push_back(incident_json(i, began_));
  out["incidents"] = std::move(incidents);
  out["goodput"] = {{"productive_s", productive_seconds_}, {"lost_s", lost_}};
  out["per_rank"] = std::move(per_rank);
  out["plan"] = plan_ ? plan_json(*plan_) : Json(nullptr);
  out["kernel_variant"] = kernel_variant_;
  out["reduction"] = "canonical";
  out["version"] = version;
  // Names and paths may hold any bytes.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kintsugi::actors
