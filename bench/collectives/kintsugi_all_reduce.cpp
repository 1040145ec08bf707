// All-reduce over the shm carrier: kintsugi_all_reduce RANKS (arena | copy). `arena`: gradients already lie in the
// rank's arena, as in training. `copy`: they are copied in before and out after.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "bench/collectives/measure.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "transport/collectives/all_reduce_tree.hpp"
#include "transport/shm/shm_carrier.hpp"

namespace kintsugi::bench {
namespace {

using namespace transport;  // NOLINT(google-build-using-namespace): a program of one file

template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void must(const Result<void>& result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
}

struct Shared {
  FileDescriptor rings;
  std::vector<FileDescriptor> arenas;
  bool copies = false;
};

void run_rank(const Shared& shared, std::uint32_t self) {
  std::vector<RankId> ranks;
  for (std::uint32_t i = 0; i < shared.arenas.size(); ++i) ranks.push_back({i});
  const auto device = kernels::cpu::make_cpu_device(1);
  const auto stream = device->create_stream();
  const auto arena = must(device->map_shared(shared.arenas[self].get(), 0, kLargest, true));
  const auto outside = must(device->allocate(kLargest));
  const auto links = must(shm::ShmCarrier::open({{self}, ranks, {}}, shared.rings.get()));
  for (const RankId peer : ranks) {
    if (peer.value != self) must(links->register_peer_arena(peer, shared.arenas[peer.value].get()));
  }
  const collectives::Party party{*links, *device, *stream, {self}};
  stream->enqueue("bench", [&]() -> Result<void> {
    links->register_own_arena({device->host_address(arena->view()), kLargest});
    Step step{};
    for (const std::size_t bytes : kSizes) {
      const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
      const kernels::View data = arena->as(kernels::DType::float32, 0, count);
      const kernels::View gradients = outside->as(kernels::DType::float32, 0, count);
      const auto all_reduce = [&] {
        must(collectives::all_reduce_tree(party, ranks, data, {++step.value}, kNoDeadline));
      };
      device->ops().fill(*stream, data, static_cast<float>(self + 1));
      all_reduce();
      const auto* sum = reinterpret_cast<const float*>(device->host_address(data));
      const auto expected = static_cast<float>(ranks.size() * (ranks.size() + 1) / 2);
      for (std::int64_t i = 0; i < count; ++i) KINTSUGI_ASSERT_MSG(sum[i] == expected, "the sum is right");
      device->ops().fill(*stream, data, 0);
      device->ops().fill(*stream, gradients, 0);
      measure(bytes, self == 0, [&] {
        if (shared.copies) device->ops().copy(*stream, data, gradients);
        all_reduce();
        if (shared.copies) device->ops().copy(*stream, gradients, data);
      });
    }
    return {};
  });
  must(stream->synchronize(kNoDeadline));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) {
  using namespace kintsugi::bench;
  const int count = argc == 3 ? std::atoi(argv[1]) : 0;
  if (count < 2) {
    std::fprintf(stderr, "usage: kintsugi_all_reduce RANKS (arena | copy)\n");
    return 2;
  }
  const auto ranks = static_cast<std::uint32_t>(count);
  Shared shared{must(shm::create_ring_segment({.ranks = ranks})), {}, std::string(argv[2]) == "copy"};
  for (std::uint32_t i = 0; i < ranks; ++i) {
    shared.arenas.push_back(must(shm::create_shared_memory("bench-arena", kLargest)));
  }
  std::vector<pid_t> children;
  for (std::uint32_t i = 1; i < ranks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      run_rank(shared, i);
      std::exit(0);
    }
    children.push_back(child);
  }
  run_rank(shared, 0);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
}
