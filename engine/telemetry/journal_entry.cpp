#include "engine/telemetry/journal_entry.hpp"

#include "schemas/codec.hpp"
#include "schemas/journal.capnp.h"

namespace kintsugi {

namespace journaled {

const char* to_string(EventKind kind) {
  switch (kind) {
    case EventKind::evidence: return "evidence";
    case EventKind::suspicion: return "suspicion";
    case EventKind::fence: return "fence";
    case EventKind::report: return "report";
    case EventKind::plan: return "plan";
    case EventKind::prepare: return "prepare";
    case EventKind::resume: return "resume";
    case EventKind::first_commit: return "first commit";
    case EventKind::incident_over: return "incident over";
    case EventKind::note: return "note";
  }
  KINTSUGI_UNREACHABLE();
}

}  // namespace journaled

namespace {

namespace wire = schemas::journal;
using namespace journaled;

static_assert(static_cast<std::uint8_t>(wire::EventKind::NOTE) == kEventKinds - 1);

// Both ways with every byte, zeros too.
capnp::Text::Reader text(const std::string& in) {
  return {in.c_str(), in.size()};
}
std::string text(capnp::Text::Reader in) {
  return {in.begin(), in.size()};
}

void write(const Started& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initStarted();
  out.setEpoch(e.epoch);
  out.setClusterId(e.cluster_id);
  out.setHost(text(e.host));
  out.setPid(e.pid);
  out.setVersion(text(e.version));
}

void write(const NodeJoined& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initNodeJoined();
  out.setNode(e.node.value);
  out.setHost(text(e.host));
  out.setIncarnation(e.incarnation.value);
  out.setSlots(e.slots);
  out.setCores(e.cores);
  out.setMemoryBytes(e.memory_bytes);
  auto labels = out.initLabels(static_cast<unsigned>(e.labels.size()));
  for (unsigned i = 0; i < labels.size(); ++i) labels.set(i, text(e.labels[i]));
  out.setKernelVariant(text(e.kernel_variant));
  out.setVersion(text(e.version));
  out.setPid(e.pid);
}

void write(const NodeLeft& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initNodeLeft();
  out.setNode(e.node.value);
  out.setWhy(text(e.why));
}

void write(const Submitted& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initSubmitted();
  out.setJob(e.job.value);
  out.setLineage(e.lineage.value);
  out.setJobFile(text(e.job_file));
  out.setSource(text(e.source));
  out.setRanks(e.ranks);
  out.setNodes(e.nodes);
  out.setThreads(e.threads);
  out.setSaveDirectory(text(e.save_directory));
  out.setResumeDirectory(text(e.resume_directory));
  out.setUcxOnly(e.ucx_only);
  out.setFirstStep(e.first_step.value);
  out.setUpdates(e.updates);
}

void write(const Ended& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initEnded();
  out.setJob(e.job.value);
  out.setExitCode(e.exit_code);
  out.setMessage(text(e.message));
}

void write(const GenerationMade& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initGeneration();
  out.setJob(e.job.value);
  out.setLineage(e.lineage.value);
  out.setEpoch(e.generation.epoch);
  out.setCounter(e.generation.counter);
  out.setNextRank(e.next_rank.value);
  out.setWhy(text(e.why));
  out.setIncidents(e.incidents);
  out.setPaused(e.paused);
}

void write(const Event& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initEvent();
  out.setJob(e.job.value);
  out.setEpoch(e.generation.epoch);
  out.setCounter(e.generation.counter);
  out.setIncident(e.incident);
  out.setKind(static_cast<wire::EventKind>(e.kind));
  out.setBy(text(e.by));
  out.setSubject(text(e.subject));
  out.setText(text(e.text));
  out.setBytesMoved(e.bytes_moved);
  out.setLanesRecomputed(e.lanes_recomputed);
  out.setStepsLost(e.steps_lost);
  out.setStep(e.step.value);
}

void write(const RecordSeen& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initRecord();
  out.setJob(e.job.value);
  out.setStep(e.step.value);
  out.setMessage({reinterpret_cast<const capnp::byte*>(e.message.data()), e.message.size()});
}

void write(const IncidentOver& e, wire::JournalEntry::Builder entry) {
  auto out = entry.initIncident();
  out.setJob(e.job.value);
  out.setId(e.id);
  out.setKind(text(e.kind));
  out.setTarget(text(e.target));
  out.setWhy(text(e.why));
  out.setEpoch(e.generation.epoch);
  out.setCounter(e.generation.counter);
  out.setRestarts(e.restarts);
  out.setDetectedNs(e.detected_ns);
  out.setFencedNs(e.fenced_ns);
  out.setResumedNs(e.resumed_ns);
  out.setFirstCommitNs(e.first_commit_ns);
  out.setLanesRecomputed(e.lanes_recomputed);
  out.setBytesMoved(e.bytes_moved);
  out.setStepsLost(e.steps_lost);
}

Started read(wire::Started::Reader in) {
  return {in.getEpoch(), in.getClusterId(), text(in.getHost()), in.getPid(), text(in.getVersion())};
}

NodeJoined read(wire::NodeJoined::Reader in) {
  NodeJoined out{.node = {in.getNode()},
                 .host = text(in.getHost()),
                 .incarnation = {in.getIncarnation()},
                 .slots = in.getSlots(),
                 .cores = in.getCores(),
                 .memory_bytes = in.getMemoryBytes(),
                 .kernel_variant = text(in.getKernelVariant()),
                 .version = text(in.getVersion()),
                 .pid = in.getPid()};
  for (const auto label : in.getLabels()) out.labels.push_back(text(label));
  return out;
}

NodeLeft read(wire::NodeLeft::Reader in) {
  return {{in.getNode()}, text(in.getWhy())};
}

Submitted read(wire::Submitted::Reader in) {
  return {.job = {in.getJob()},
          .lineage = {in.getLineage()},
          .job_file = text(in.getJobFile()),
          .source = text(in.getSource()),
          .ranks = in.getRanks(),
          .nodes = in.getNodes(),
          .threads = in.getThreads(),
          .save_directory = text(in.getSaveDirectory()),
          .resume_directory = text(in.getResumeDirectory()),
          .ucx_only = in.getUcxOnly(),
          .first_step = {in.getFirstStep()},
          .updates = in.getUpdates()};
}

Ended read(wire::Ended::Reader in) {
  return {{in.getJob()}, in.getExitCode(), text(in.getMessage())};
}

GenerationMade read(wire::GenerationMade::Reader in) {
  return {.job = {in.getJob()},
          .lineage = {in.getLineage()},
          .generation = {in.getEpoch(), in.getCounter()},
          .next_rank = {in.getNextRank()},
          .why = text(in.getWhy()),
          .incidents = in.getIncidents(),
          .paused = in.getPaused()};
}

Event read(wire::Event::Reader in) {
  return {.job = {in.getJob()},
          .generation = {in.getEpoch(), in.getCounter()},
          .incident = in.getIncident(),
          .kind = static_cast<EventKind>(in.getKind()),
          .by = text(in.getBy()),
          .subject = text(in.getSubject()),
          .text = text(in.getText()),
          .bytes_moved = in.getBytesMoved(),
          .lanes_recomputed = in.getLanesRecomputed(),
          .steps_lost = in.getStepsLost(),
          .step = {in.getStep()}};
}

RecordSeen read(wire::RecordSeen::Reader in) {
  const auto message = std::as_bytes(std::span(in.getMessage().begin(), in.getMessage().size()));
  return {{in.getJob()}, {in.getStep()}, {message.begin(), message.end()}};
}

IncidentOver read(wire::IncidentOver::Reader in) {
  return {.job = {in.getJob()},
          .id = in.getId(),
          .kind = text(in.getKind()),
          .target = text(in.getTarget()),
          .why = text(in.getWhy()),
          .generation = {in.getEpoch(), in.getCounter()},
          .restarts = in.getRestarts(),
          .detected_ns = in.getDetectedNs(),
          .fenced_ns = in.getFencedNs(),
          .resumed_ns = in.getResumedNs(),
          .first_commit_ns = in.getFirstCommitNs(),
          .lanes_recomputed = in.getLanesRecomputed(),
          .bytes_moved = in.getBytesMoved(),
          .steps_lost = in.getStepsLost()};
}

constexpr const char* kWhat = "a journal entry";

Result<JournalEntry> read(wire::JournalEntry::Reader in) {
  JournalEntry out{.wall_ns = in.getWallNs()};
  switch (in.which()) {
    case wire::JournalEntry::STARTED: out.what = read(in.getStarted()); return out;
    case wire::JournalEntry::NODE_JOINED: out.what = read(in.getNodeJoined()); return out;
    case wire::JournalEntry::NODE_LEFT: out.what = read(in.getNodeLeft()); return out;
    case wire::JournalEntry::SUBMITTED: out.what = read(in.getSubmitted()); return out;
    case wire::JournalEntry::ENDED: out.what = read(in.getEnded()); return out;
    case wire::JournalEntry::GENERATION: out.what = read(in.getGeneration()); return out;
    case wire::JournalEntry::EVENT:
      if (static_cast<std::uint16_t>(in.getEvent().getKind()) >= kEventKinds) break;
      out.what = read(in.getEvent());
      return out;
    case wire::JournalEntry::RECORD: out.what = read(in.getRecord()); return out;
    case wire::JournalEntry::INCIDENT: out.what = read(in.getIncident()); return out;
  }
  return decode_failure(kWhat, "its kind is unknown to this version");
}

}  // namespace

std::vector<std::byte> encode_entry(const JournalEntry& entry) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<wire::JournalEntry>();
  out.setWallNs(entry.wall_ns);
  std::visit([&](const auto& e) { write(e, out); }, entry.what);
  return encode_message(message);
}

Result<JournalEntry> decode_entry(std::span<const std::byte> bytes) {
  return read_message<wire::JournalEntry>(bytes, kWhat, [](auto in) { return read(in); });
}

}  // namespace kintsugi
