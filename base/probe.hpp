// Counts how often a rare branch was taken, so that a campaign can say which it has never reached. One relaxed load and store
// where it stands; counts of threads that meet there may be lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace kintsugi {

class Probe {
 public:
  explicit Probe(const char* name) : name_(name), next_(first().load()) {
    while (!first().compare_exchange_weak(next_, this)) {
    }
  }
  void hit() { count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  // Of every probe in this process, by name: those of one name together. Probes register at the start of the process.
  static std::map<std::string, std::uint64_t> counts() {
    std::map<std::string, std::uint64_t> all;
    for (const Probe* p = first().load(); p != nullptr; p = p->next_) all[p->name_] += p->count_.load();
    return all;
  }

 private:
  static std::atomic<Probe*>& first() {
    static std::atomic<Probe*> list{nullptr};
    return list;
  }

  const char* name_;
  Probe* next_;
  std::atomic<std::uint64_t> count_{0};
};

namespace probe_detail {
template <class Name>
struct Registered {
  static inline Probe probe{Name::text()};
};
}  // namespace probe_detail

}  // namespace kintsugi

// `name`: a string literal. The probe exists, with count 0, before anything runs.
#define KINTSUGI_PROBE(name)                                              \
  do {                                                                    \
    struct KintsugiProbeName {                                            \
      static const char* text() { return name; }                          \
    };                                                                    \
    ::kintsugi::probe_detail::Registered<KintsugiProbeName>::probe.hit(); \
  } while (false)
