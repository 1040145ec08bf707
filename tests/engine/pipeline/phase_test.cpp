// The names of phases, as they are seen from outside.
#include "engine/pipeline/phase.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace kintsugi {
namespace {

std::string name_of_this_thread() {
  std::ifstream file("/proc/thread-self/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

template <class Phase>
void expect_shown(Phase last) {
  std::thread([last] {
    for (int p = 0; p <= static_cast<int>(last); ++p) {
      const Phase phase = static_cast<Phase>(p);
      show_phase(phase);
      EXPECT_EQ(name_of_this_thread(), to_string(phase));
    }
  }).join();
}

TEST(Phase, every_one_is_shown_whole) {
  expect_shown(ChangePhase::train);
  expect_shown(StepPhase::apply);
}

TEST(Phase, sums_and_reductions_are_told_from_the_rest_of_an_instruction_list) {
  EXPECT_EQ(phase_of(Opcode::backward), StepPhase::execute);
  EXPECT_EQ(phase_of(Opcode::send_kept), StepPhase::partial_sums);
  EXPECT_EQ(phase_of(Opcode::send_partial), StepPhase::partial_sums);
  EXPECT_EQ(phase_of(Opcode::reduce_group), StepPhase::reduce);
  EXPECT_EQ(phase_of(Opcode::receive_reduced), StepPhase::reduce);
}

}  // namespace
}  // namespace kintsugi
