#include "actors/job_journal.hpp"

#include <fmt/format.h>
#include <caf/send.hpp>

#include <utility>

#include "actors/restart.hpp"
#include "base/clock.hpp"

namespace kintsugi::actors {

namespace {

using journaled::Event;
using journaled::EventKind;

constexpr const char* kSelf = "supervisor";

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

}  // namespace

journaled::GenerationMade JobJournal::generation(const std::string& why) const {
  const JobRequest& r = machine_.request();
  return {
      r.job, r.lineage, machine_.generation(), machine_.next_rank(), why, machine_.incidents(), machine_.is_pausing()};
}

void JobJournal::record(const DecisionRecord& record, bool last, Instant now) {
  if (!last && now - recorded_ < kRecordInterval) return;
  recorded_ = now;
  write(journaled::RecordSeen{record.job, record.step, encode_record(record)});
}

void JobJournal::incident(const IncidentReport& incident, Instant now) {
  write(incident_entry(machine_.request().job, incident, {now, wall_clock_ns()}));
}

void JobMemo::note(const decltype(JournalEntry::what)& what) {
  if (const auto* made = std::get_if<journaled::GenerationMade>(&what)) generation = *made;
  if (const auto* end = std::get_if<journaled::Ended>(&what)) ended = *end;
}

void JobJournal::write(decltype(JournalEntry::what) what) {
  memo_.note(what);
  caf::anon_send(writer_, WriteDown{entry_now(std::move(what))});
}

void JobJournal::tell(Event event) {
  event.job = machine_.request().job;
  if (event.generation == Generation{}) event.generation = machine_.generation();
  if (event.incident == 0 && machine_.in_incident()) event.incident = machine_.incidents();
  if (event.step == Step{}) event.step = machine_.final_step();
  write(std::move(event));
}

void JobJournal::evidence(const JobEvent& event) {
  namespace seen = job_event;
  const auto tell_of = [this](std::string by, std::string subject, std::string text) {
    tell({.kind = EventKind::evidence, .by = std::move(by), .subject = std::move(subject), .text = std::move(text)});
  };
  std::visit(Overloaded{
                 [&](const seen::NodeLost& e) { tell_of(kSelf, "node " + to_string(e.node), e.why); },
                 [&](const seen::RankDown& e) {
                   if (!e.expected) tell_of("its node, by pidfd", machine_.name_of(e.rank), e.why);
                 },
                 [&](const seen::RankReported& e) { answered(e); },
                 [&](const seen::RankFailed& e) { tell_of(machine_.name_of(e.rank), "its work", e.error.message); },
                 [&](const seen::PauseJob&) { write(generation("the job is to pause")); },
                 [&](const seen::ResumeJob&) { write(generation("the job goes on")); },
                 [&](const seen::Cancel& e) { tell_of(kSelf, "the job", e.why); },
                 [&](const seen::DeadlinePassed&) { tell_of(kSelf, "the job", "a deadline passed"); },
                 [&](const seen::NodeRestated& e) {
                   tell_of("node " + to_string(e.node), "the job",
                           fmt::format("it is back with {} living ranks of generation {}", e.living.size(),
                                       to_string(e.generation)));
                 },
                 [](const auto&) {},
             },
             event);
}

// Who answers a fence waits from then on.
void JobJournal::answered(const job_event::RankReported& e) {
  constexpr std::uint32_t kTold = 64;  // in larger jobs the sums must do
  if (!machine_.in_incident() || !machine_.plan() || machine_.plan()->rank_count() > kTold) return;
  tell({.generation = e.generation,
        .kind = EventKind::report,
        .by = "its stage",
        .subject = machine_.name_of(e.report.rank),
        .text = fmt::format("fenced; it holds {} copies of shards and {} partial sums of step {}",
                            e.report.copies.size(), e.report.sums.sums.size(), e.report.sums.step.value)});
}

void JobJournal::decided(const JobEffect& effect) {
  namespace effects = job_effect;
  const auto tell_of = [this](EventKind kind, std::string text) {
    tell({.kind = kind, .by = kSelf, .text = std::move(text)});
  };
  std::visit(
      Overloaded{
          [&](const effects::Note& e) { tell_of(EventKind::note, e.text); },
          [&](const effects::KillRank& e) {
            tell({.kind = EventKind::suspicion, .by = kSelf, .subject = machine_.name_of(e.rank), .text = e.why});
          },
          [&](const effects::Fence& e) { tell_of(EventKind::fence, e.why); },
          [&](const effects::Prepare& e) {
            Event plan{.kind = EventKind::plan, .by = kSelf, .text = e.plan.reason};
            if (e.transition) {
              tell({.kind = EventKind::report,
                    .by = kSelf,
                    .text = fmt::format("every member answered: step {} is final, {} copies change hands",
                                        e.transition->step.value, e.transition->moves.size()),
                    .step = e.transition->step});
              plan.bytes_moved = e.bytes_moved;
            }
            tell(std::move(plan));
          },
          [&](const effects::Resume& e) {
            tell_of(EventKind::prepare, "every member is ready");
            tell_of(EventKind::resume, fmt::format("training goes on under generation {} with {} ranks",
                                                   to_string(e.generation), machine_.plan()->rank_count()));
          },
          [&](const effects::Incident& e) {
            const IncidentReport& i = e.report;
            Event over{.generation = i.generation,
                       .incident = i.id,
                       .kind = EventKind::incident_over,
                       .by = kSelf,
                       .subject = i.target,
                       .text = i.kind + ": " + i.why,
                       .bytes_moved = i.bytes_moved,
                       .lanes_recomputed = i.lanes_recomputed,
                       .steps_lost = i.steps_lost};
            if (i.first_commit) {
              Event commit = over;
              commit.kind = EventKind::first_commit;
              commit.text = fmt::format("{:.3f} s after the first evidence", (*i.first_commit - i.detected).seconds());
              tell(std::move(commit));
            }
            tell(std::move(over));
          },
          [](const auto&) {},
      },
      effect);
}

}  // namespace kintsugi::actors
