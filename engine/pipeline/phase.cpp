#include "engine/pipeline/phase.hpp"

#include "base/assert.hpp"
#include "base/thread_name.hpp"

namespace kintsugi {

const char* to_string(ChangePhase phase) {
  switch (phase) {
    case ChangePhase::suspect: return "suspect";
    case ChangePhase::fence: return "fence";
    case ChangePhase::report: return "report";
    case ChangePhase::plan: return "plan";
    case ChangePhase::prepare: return "prepare";
    case ChangePhase::switching: return "switch";
    case ChangePhase::resume: return "resume";
    case ChangePhase::train: return "train";
  }
  KINTSUGI_UNREACHABLE();
}

const char* to_string(StepPhase phase) {
  switch (phase) {
    case StepPhase::execute: return "execute";
    case StepPhase::partial_sums: return "partial sums";
    case StepPhase::reduce: return "reduce";
    case StepPhase::vote: return "vote";
    case StepPhase::record: return "record";
    case StepPhase::apply: return "apply";
  }
  KINTSUGI_UNREACHABLE();
}

StepPhase phase_of(Opcode op) {
  switch (op) {
    case Opcode::send_kept:
    case Opcode::send_partial: return StepPhase::partial_sums;
    case Opcode::reduce_group:
    case Opcode::receive_reduced: return StepPhase::reduce;
    case Opcode::fetch_weights:
    case Opcode::load_tokens:
    case Opcode::receive_activation:
    case Opcode::forward:
    case Opcode::send_activation:
    case Opcode::drain_activation:
    case Opcode::load_targets:
    case Opcode::receive_gradient:
    case Opcode::backward:
    case Opcode::send_gradient:
    case Opcode::merge_lanes: return StepPhase::execute;
  }
  KINTSUGI_UNREACHABLE();
}

void show_phase(ChangePhase phase) {
  name_thread(to_string(phase));
}

void show_phase(StepPhase phase) {
  name_thread(to_string(phase));
}

void enqueue_phase(kernels::Stream& stream, StepPhase phase) {
  stream.enqueue("phase", [phase]() -> Result<void> {
    show_phase(phase);
    return {};
  });
}

}  // namespace kintsugi
