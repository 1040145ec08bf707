#include "actors/restart.hpp"

namespace kintsugi::actors {

namespace {

Result<AdmittedJob> readmit(const journaled::Submitted& in) {
  AdmittedJob job;
  job.submission = {in.job_file,       in.source,           in.ranks,    in.nodes, in.threads,
                    in.save_directory, in.resume_directory, in.ucx_only, true};
  KINTSUGI_TRY_ASSIGN(job.config, parse_job(in.job_file, in.source + " (as journaled)"));
  job.lineage = in.lineage;
  job.first = in.first_step;
  job.updates = in.updates;
  return job;
}

Result<Adoption> adoption_of(const RestartJob& job, const std::map<NodeId, journaled::NodeJoined>& nodes) {
  Adoption adoption;
  adoption.first = job.submitted.first_step;
  if (job.generation) {
    adoption.promised = job.generation->generation;
    adoption.next_rank = job.generation->next_rank.value;
    adoption.incidents = job.generation->incidents;
    adoption.paused = job.generation->paused;
  }
  if (job.record) {
    KINTSUGI_TRY_ASSIGN(adoption.record, decode_record(job.record->message));
  }
  for (const auto& [node, joined] : nodes) adoption.nodes[node] = to_string(node) + " (" + joined.host + ")";
  return adoption;
}

}  // namespace

journaled::NodeJoined joined_entry(NodeId node, const NodeInfo& info) {
  return {node,        info.host,           info.incarnation, info.slots, info.cores, info.memory_bytes,
          info.labels, info.kernel_variant, info.version,     info.pid};
}

journaled::Submitted submitted_entry(JobId job, const AdmittedJob& a) {
  const Submission& s = a.submission;
  return {job,       a.lineage,        to_yaml(a.config),  s.source,   s.ranks, s.nodes,
          s.threads, s.save_directory, s.resume_directory, s.ucx_only, a.first, a.updates};
}

namespace {

std::int64_t to_wall(Instant at, const Moment& moment) {
  return moment.wall_ns + (at - moment.now).ns;
}
Instant from_wall(std::int64_t wall_ns, const Moment& moment) {
  return moment.now + Duration{wall_ns - moment.wall_ns};
}

}  // namespace

journaled::IncidentOver incident_entry(JobId job, const IncidentReport& i, const Moment& moment) {
  const auto wall = [&](const std::optional<Instant>& at) { return at ? to_wall(*at, moment) : 0; };
  return {job,
          i.id,
          i.kind,
          i.target,
          i.why,
          i.generation,
          i.restarts,
          to_wall(i.detected, moment),
          wall(i.fenced),
          wall(i.resumed),
          wall(i.first_commit),
          i.lanes_recomputed,
          i.bytes_moved,
          i.steps_lost};
}

ReportedBefore reported_before(const RestartJob& job, const Moment& moment) {
  ReportedBefore before{from_wall(job.submitted_ns, moment), {}};
  const auto instant = [&](std::int64_t wall_ns) {
    return wall_ns == 0 ? std::nullopt : std::optional(from_wall(wall_ns, moment));
  };
  for (const journaled::IncidentOver& e : job.incidents) {
    IncidentReport& i = before.incidents.emplace_back();
    i.id = e.id;
    i.kind = e.kind;
    i.target = e.target;
    i.why = e.why;
    i.generation = e.generation;
    i.restarts = e.restarts;
    i.detected = from_wall(e.detected_ns, moment);
    i.fenced = instant(e.fenced_ns);
    i.resumed = instant(e.resumed_ns);
    i.first_commit = instant(e.first_commit_ns);
    i.lanes_recomputed = e.lanes_recomputed;
    i.bytes_moved = e.bytes_moved;
    i.steps_lost = e.steps_lost;
  }
  return before;
}

Result<Inheritance> inherit(const Journal* journal) {
  Inheritance in;
  if (journal == nullptr) return in;
  in.state = journal->found();
  for (const auto& [id, job] : in.state.jobs) {
    KINTSUGI_TRY_ASSIGN(in.jobs[id], readmit(job.submitted));
    KINTSUGI_TRY_ASSIGN(in.adoptions[id], adoption_of(job, in.state.nodes));
  }
  return in;
}

std::optional<NodeId> former_number(const std::map<NodeId, journaled::NodeJoined>& nodes, NodeId claimed,
                                    Incarnation incarnation) {
  const auto at = nodes.find(claimed);
  if (at == nodes.end() || at->second.incarnation != incarnation) return std::nullopt;
  return claimed;
}

}  // namespace kintsugi::actors
