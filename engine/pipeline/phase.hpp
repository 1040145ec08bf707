// What a rank is doing, as the names of its threads: `top -H` and /proc/PID/task/*/comm show it from outside, even when the
// process is stopped. tests/faults/campaign.py strikes by them.
#pragma once

#include <cstdint>

#include "engine/pipeline/program.hpp"
#include "kernels/device.hpp"

namespace kintsugi {

// Of a generation change, in order; the thread that prepares and trains. `train`: none is under way.
enum class ChangePhase : std::uint8_t {
  suspect,    // something failed here; the fence is still to come
  fence,      // work of the generation before is cancelled and its carriers closed
  report,     // what is held is listed and sent
  plan,       // reported; the plan is still to come
  prepare,    // memory, state, connections
  switching,  // prepared; others are not yet
  resume,     // from the word to go on until the first step is final
  train,
};

// Of a step (DESIGN 6), in order; the thread of the stream.
enum class StepPhase : std::uint8_t {
  execute,       // fetch weights, forward, backward, activations
  partial_sums,  // to the primaries of the shards
  reduce,        // primaries finish the trees and ship to replicas, who receive
  vote,          // until the decision record is here
  record,        // held; nothing of the step before is overwritten yet
  apply,         // update, publish, update of replicas
};

const char* to_string(ChangePhase phase);
const char* to_string(StepPhase phase);
StepPhase phase_of(Opcode op);

// Renames the calling thread.
void show_phase(ChangePhase phase);
void show_phase(StepPhase phase);
// Once the work before it on the stream is done.
void enqueue_phase(kernels::Stream& stream, StepPhase phase);

}  // namespace kintsugi
