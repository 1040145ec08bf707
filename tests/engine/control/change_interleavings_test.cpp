// All orders in which the events of a generation change can come, with every fault at every moment. What is counted are
// paths; a world that was seen is not explored again, so there may be very many.
#include <cstdio>
#include <string_view>
#include <unordered_map>

#include "tests/engine/control/change_model.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi::testing {
namespace {

class Explorer {
 public:
  explicit Explorer(ModelRules rules) : model_(rules) {}

  // From where a step got to `what` without a fault; empty: from its begin.
  World start(std::uint32_t faults, std::string_view what) {
    World world = model_.start();
    for (bool there = what.empty(); !there;) {
      Happening first = model_.next(world).front();
      there = first.what == what;
      world = std::move(first.after);
    }
    world.faults = faults;
    return world;
  }

  // Paths from `world` to an end.
  double explore(const World& world) {
    const std::uint64_t key = world.digest().low;
    const auto seen = paths_.find(key);
    if (seen != paths_.end()) return seen->second;
    double paths = 0;
    if (model_.is_end(world)) {
      ++ends_;
      paths = 1;
    }
    for (const Happening& h : model_.next(world)) {
      trail_.push_back({h.what, h.who});
      tell_first_failure();
      if (told_) return 1;
      paths += explore(h.after);
      trail_.pop_back();
    }
    EXPECT_GT(paths, 0) << "nothing happens, and the job has not ended";
    tell_first_failure();
    return paths_[key] = paths;
  }

  std::size_t worlds() const { return paths_.size(); }
  std::size_t ends() const { return ends_; }
  std::size_t machine_states() const { return model_.machine_states(); }

 private:
  void tell_first_failure() {
    if (told_ || !::testing::Test::HasFailure()) return;
    told_ = true;
    std::printf("what happened:\n");
    for (const auto& [what, who] : trail_) std::printf("  %s %u\n", what, who);
  }

  ChangeModel model_;
  std::unordered_map<std::uint64_t, double> paths_;  // by world
  std::vector<std::pair<const char*, std::uint32_t>> trail_;
  std::size_t ends_ = 0;
  bool told_ = false;
};

void explore_all(ModelRules rules, std::uint32_t faults, std::string_view from, double least) {
  Explorer explorer(rules);
  const double paths = explorer.explore(explorer.start(faults, from));
  std::printf("%.3g interleavings of %zu worlds, %zu of them ends, with %zu states of the machine\n", paths,
              explorer.worlds(), explorer.ends(), explorer.machine_states());
  EXPECT_GE(paths, least);
}

TEST(ChangeInterleavings, without_a_fault_all_steps_are_done) {
  explore_all({.steps = 2}, 0, "", 1e6);
}

TEST(ChangeInterleavings, after_one_fault_at_any_moment_all_steps_are_done_or_what_is_lost_is_named) {
  explore_all({}, 1, "", 1e20);
}

TEST(ChangeInterleavings, after_one_fault_at_any_moment_the_same_holds_where_members_are_counted) {
  explore_all({.counted = true}, 1, "", 1e20);
}

// Deaths of ranks and nodes, from the moment on at which a step is final for one rank alone.
TEST(ChangeInterleavings, after_two_faults_no_final_step_is_undone_that_anybody_knows) {
  explore_all({.refill = false, .hang = false, .dropped = false}, 2, "the record is made by rank", 1e18);
}

}  // namespace
}  // namespace kintsugi::testing
