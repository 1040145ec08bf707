// Wrong decisions on purpose, one at a time, to see that the simulator's checks bite. They exist only in libraries that are
// built with KINTSUGI_MUTANTS, for that test; in the product KINTSUGI_MUTANT is the constant false.
#pragma once

#include <cstdint>

namespace kintsugi {

enum class Mutant : std::uint8_t {
  none,
  // Of machines in engine/control.
  commits_without_acknowledgement,  // the vote does not ask replicas
  stale_learning_rate,              // of the step before
  skips_a_fence,                    // a rank's silence is taken for its answer
  two_plans_in_a_generation,        // prepares once more under the same number
  leaves_a_record_incomplete,       // what is final for somebody is not completed by the others
  believes_a_stale_copy,            // a holder that is a step behind and has no gradient counts
  forgets_what_nodes_hold,          // memory that outlived its process is not asked for
  resumes_early,                    // before the last member is prepared
  reuses_rank_numbers,              // after a restart
  adopts_without_looking,           // a plan of which a member is gone
  keeps_a_lost_node,                // its ranks count as living
  counts_generations_anew,          // a restarted supervisor takes no higher epoch
  // Of the simulated ranks and nodes, where those decide.
  accepts_stale_data,        // of an older generation
  applies_twice,             // a record that is applied already
  adds_in_order_of_arrival,  // a tree turned around
  overwrites_lent_weights,   // applies before peers have taken what was lent
  joins_early,               // a rank that is up takes part before a vote lets it in
  repeats_a_sample,          // redoes a lane whose sum was kept, and adds both
  applies_before_noting,     // the record is on the board after the update
};
constexpr std::uint8_t kMutants = 20;

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
