// A device that catches callers who forget they have one: the CPU backend with memory that the host cannot read and
// work that runs late.
//
// A DevicePtr lies in pages without access, so any host dereference traps; the executor works through a second mapping
// of the same memfd. Before each piece of work a stream's thread gives up its turn a number of times drawn from `seed`, so
// that work of two streams not ordered by an event runs in an order that differs from seed to seed.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.hpp"

namespace kintsugi::kernels::fake {

struct FakeOptions {
  int threads = 1;
  std::uint64_t seed = 0;
};

// host_address asserts that it is called from work that runs on a stream.
std::unique_ptr<Device> make_fake_device(FakeOptions options);

}  // namespace kintsugi::kernels::fake
