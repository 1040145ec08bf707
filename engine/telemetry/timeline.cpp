#include "engine/telemetry/timeline.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/assert.hpp"

namespace kintsugi {

using journaled::Event;
using journaled::EventKind;

namespace {

double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

// Answers count from the last fence on: whoever had answered one before went on waiting.
std::vector<Idle> idle_until_resume(const std::vector<TimelineLine>& lines) {
  std::map<std::string, std::int64_t> since;
  std::vector<Idle> idle;
  for (const TimelineLine& line : lines) {
    if (line.event.kind == EventKind::report && !line.event.subject.empty())
      since.try_emplace(line.event.subject, line.wall_ns);
    if (line.event.kind != EventKind::resume) continue;
    idle.clear();
    for (const auto& [who, from] : since) idle.push_back({who, line.wall_ns - from});
  }
  return idle;
}

std::string wall_time(std::int64_t wall_ns) {
  const std::int64_t ms = wall_ns / 1'000'000;
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03} UTC", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

}  // namespace

const Event& IncidentTimeline::verdict() const {
  KINTSUGI_ASSERT(!lines.empty());
  for (const TimelineLine& line : lines) {
    if (line.event.kind == EventKind::incident_over) return line.event;
  }
  return lines.front().event;
}

std::vector<IncidentTimeline> incident_timelines(std::span<const JournalEntry> entries) {
  std::map<std::pair<JobId, std::uint32_t>, std::size_t> known;
  std::vector<IncidentTimeline> all;
  for (const JournalEntry& entry : entries) {
    const auto* event = std::get_if<Event>(&entry.what);
    if (event == nullptr || event->incident == 0) continue;
    const auto [at, is_new] = known.try_emplace({event->job, event->incident}, all.size());
    if (is_new) all.push_back({event->job, event->incident, {}, {}, false});
    IncidentTimeline& incident = all[at->second];
    incident.lines.push_back({entry.wall_ns, *event});
    incident.over = incident.over || event->kind == EventKind::incident_over;
  }
  for (IncidentTimeline& incident : all) incident.idle = idle_until_resume(incident.lines);
  return all;
}

std::string to_text(const IncidentTimeline& incident) {
  const Event& verdict = incident.verdict();
  std::string text = fmt::format("incident {} of job {}: {}{}{}\n", incident.incident, incident.job.value,
                                 verdict.subject, verdict.subject.empty() ? "" : ": ", verdict.text);
  const std::int64_t began = incident.lines.front().wall_ns;
  text += fmt::format("first evidence at {}, after step {}{}\n", wall_time(began),
                      incident.lines.front().event.step.value, incident.over ? "" : "; it is not over");
  for (const auto& [wall_ns, e] : incident.lines) {
    text +=
        fmt::format("  {:>+9.3f} s  {:<6} {:<13} {}: {}{}{}\n", seconds_between(began, wall_ns),
                    to_string(e.generation), to_string(e.kind), e.by, e.subject, e.subject.empty() ? "" : ": ", e.text);
  }
  for (const Idle& idle : incident.idle) {
    text += fmt::format("  {} was idle for {:.3f} s\n", idle.who, static_cast<double>(idle.ns) * 1e-9);
  }
  text += fmt::format("  {} bytes of state moved, {} lanes computed again, {} steps lost\n", verdict.bytes_moved,
                      verdict.lanes_recomputed, verdict.steps_lost);
  return text;
}

std::string to_json(const IncidentTimeline& incident) {
  const Event& verdict = incident.verdict();
  nlohmann::ordered_json out{{"job", incident.job.value},
                             {"incident", incident.incident},
                             {"over", incident.over},
                             {"target", verdict.subject},
                             {"why", verdict.text},
                             {"bytes_moved", verdict.bytes_moved},
                             {"lanes_recomputed", verdict.lanes_recomputed},
                             {"steps_lost", verdict.steps_lost},
                             {"events", nlohmann::ordered_json::array()},
                             {"idle", nlohmann::ordered_json::array()}};
  const std::int64_t began = incident.lines.front().wall_ns;
  for (const auto& [wall_ns, e] : incident.lines) {
    out["events"].push_back({{"seconds", seconds_between(began, wall_ns)},
                             {"wall_ns", wall_ns},
                             {"generation", to_string(e.generation)},
                             {"kind", to_string(e.kind)},
                             {"by", e.by},
                             {"subject", e.subject},
                             {"text", e.text},
                             {"step", e.step.value}});
  }
  for (const Idle& idle : incident.idle) {
    out["idle"].push_back({{"who", idle.who}, {"seconds", static_cast<double>(idle.ns) * 1e-9}});
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kintsugi
