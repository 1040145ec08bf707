// Wrong decisions on purpose, one at a time, to see that the simulator's checks bite. They exist only in libraries that are
// built with KINTSUGI_MUTANTS, for that test; in the product KINTSUGI_MUTANT is the constant false.
#pragma once

#include <cstdint>

namespace kintsugi {

enum class Mutant : std::uint8_t {
  none,
  // Of decisions in engine/control.
  commits_without_acknowledgement,  // the vote does not wait for replicas
  stale_learning_rate,              // of the step before
  skips_a_fence,                    // ranks are not asked what they hold
  two_plans_in_a_generation,        // a change that starts over keeps its number
  leaves_a_record_incomplete,       // what is final for somebody is not completed by the others
  believes_a_stale_copy,            // memory that a gone rank left a step behind counts
  takes_from_a_wrong_holder,        // a copy is asked of whoever comes first
  resumes_early,                    // before the last member is prepared
  reuses_rank_numbers,              // after a restart
  counts_generations_anew,          // after a restart
  changes_without_a_vote,           // a new rank is let in at once
  // Of the shells around them, as the simulator has them.
  accepts_stale_data,          // of an older generation
  applies_twice,               // a record that is applied already
  adds_in_reverse,             // the tree of lanes, turned around
  applies_before_the_vote,     // state is overwritten before the record is there
  repeats_samples,             // after a change the data of the step before
  forgets_the_record,          // a rank does not report the newest record that it holds
  tells_before_it_is_durable,  // a generation, to its members
  // Breaks no rule: what it costs shows in a fleet's figures alone.
  never_replaces_the_lost,  // while training goes on
};
constexpr std::uint8_t kMutants = 19;  // `none` counted, and not those that break no rule

#ifdef KINTSUGI_MUTANTS
inline Mutant& active_mutant() {
  static Mutant active = Mutant::none;
  return active;
}
#define KINTSUGI_MUTANT(which) (::kintsugi::active_mutant() == ::kintsugi::Mutant::which)
#else
#define KINTSUGI_MUTANT(which) false
#endif

}  // namespace kintsugi
