#include "sim/fleet/timeline.hpp"

#include <algorithm>

namespace kintsugi::sim {

namespace {

constexpr std::uint64_t kSourceStream = 1000, kLemonStream = 1;

// The first of a seeded permutation, without repetition.
std::vector<std::uint32_t> lemons_of(const Scenario& s, std::uint64_t seed) {
  DrawStream stream(seed, kLemonStream);
  std::vector<std::uint32_t> nodes;
  while (nodes.size() < s.lemons.count) {
    const auto node = static_cast<std::uint32_t>(stream.below(s.cluster.provisioned()));
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

class Drawer {
 public:
  Drawer(const Scenario& s, std::uint64_t seed) : s_(s), seed_(seed), lemons_(lemons_of(s, seed)) {}

  void draw_source(std::uint32_t index) {
    const FaultSource& source = s_.faults[index];
    DrawStream stream(seed_, kSourceStream + index);
    if (source.at) return strike(index, *source.at, stream);
    if (!source.gap) return;
    for (double at = draw(*source.gap, stream); at < s_.duration; at += draw(*source.gap, stream)) {
      strike(index, at, stream);
    }
  }

  std::vector<Fault> take() {
    std::stable_sort(faults_.begin(), faults_.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
    return std::move(faults_);
  }
  void add(const Fault& fault) { faults_.push_back(fault); }

 private:
  void strike(std::uint32_t index, double at, DrawStream& stream) {
    const FaultSource& source = s_.faults[index];
    for (std::uint32_t b = 0; b < source.burst; ++b) {
      Fault fault = draw_fault(s_, index, b == 0 ? at : at + stream.unit() * source.burst_within, stream);
      const bool of_one_node = source.kind != FaultClass::rack && source.kind != FaultClass::network_switch;
      if (!lemons_.empty() && of_one_node && !source.target && stream.unit() < s_.lemons.share) {
        fault.place = lemons_[stream.below(lemons_.size())];
      }
      if (fault.at < s_.duration) faults_.push_back(fault);
    }
  }

  const Scenario& s_;
  const std::uint64_t seed_;
  const std::vector<std::uint32_t> lemons_;
  std::vector<Fault> faults_;
};

}  // namespace

Fault draw_fault(const Scenario& s, std::uint32_t index, double at, DrawStream& stream) {
  const FaultSource& source = s.faults[index];
  const std::uint32_t places = source.kind == FaultClass::rack             ? s.cluster.racks
                               : source.kind == FaultClass::network_switch ? s.cluster.switches
                                                                           : s.cluster.provisioned();
  Fault fault{at, index, source.kind, 0, 0, source.slowdown, source.hang};
  fault.place = source.target.value_or(static_cast<std::uint32_t>(stream.below(places)));
  fault.out = draw(s.repair[static_cast<int>(source.kind)], stream);
  return fault;
}

Timeline draw_timeline(const Scenario& s, std::uint64_t seed) {
  Timeline timeline;
  Drawer drawer(s, seed);
  for (std::uint32_t i = 0; i < s.faults.size(); ++i) {
    timeline.causes.push_back(s.faults[i].cause);
    drawer.draw_source(i);
  }
  timeline.causes.emplace_back("trace");
  const auto of_trace = static_cast<std::uint32_t>(s.faults.size());
  for (const TraceEvent& e : s.trace) {
    if (e.start < s.duration && e.node < s.cluster.provisioned())
      drawer.add({e.start, of_trace, e.kind, e.node, e.end - e.start, 2, false});
  }
  timeline.faults = drawer.take();
  return timeline;
}

std::vector<std::uint32_t> nodes_struck(const ClusterShape& cluster, const Fault& fault) {
  std::vector<std::uint32_t> nodes;
  if (fault.kind == FaultClass::rack || fault.kind == FaultClass::network_switch) {
    for (std::uint32_t n = 0; n < cluster.provisioned(); ++n) {
      const std::uint32_t of = fault.kind == FaultClass::rack ? cluster.rack_of(n) : cluster.switch_of(n);
      if (of == fault.place) nodes.push_back(n);
    }
    return nodes;
  }
  return {fault.place};
}

}  // namespace kintsugi::sim
