// Runs one function at every rank, each in a stream's work on a fake device of its own, over a real carrier.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "kernels/fake/fake_device.hpp"
#include "tests/transport/carriers/party.hpp"
#include "transport/collectives/party.hpp"

namespace kintsugi::transport::test {

// The result of each rank.
inline std::vector<Result<void>> on_ranks(Carrier carrier, std::uint32_t count,
                                          const std::function<Result<void>(collectives::Party&)>& body) {
  const Party shared(carrier, {.ranks = count, .memory_bytes = 4096});
  auto ranks = shared.open_all();
  struct Worker {
    std::unique_ptr<kernels::Device> device;
    std::unique_ptr<kernels::Stream> stream;
  };
  std::vector<Worker> workers(count);
  std::vector<Event> ends;
  for (std::uint32_t i = 0; i < count; ++i) {
    Worker& w = workers[i];
    w.device = kernels::fake::make_fake_device({.threads = 1, .seed = i});
    w.stream = w.device->create_stream();
    w.stream->enqueue("test", [&, i]() -> Result<void> {
      collectives::Party party{*ranks[i].link, *workers[i].device, *workers[i].stream, {i}};
      return body(party);
    });
    ends.push_back(w.stream->record());
  }
  std::vector<Result<void>> results;
  for (const Event& end : ends) results.push_back(end.wait(in(seconds(60))));
  return results;
}

inline void expect_all_ok(const std::vector<Result<void>>& results) {
  for (const auto& r : results) EXPECT_TRUE(r.ok()) << r.error().message;
}

}  // namespace kintsugi::transport::test
