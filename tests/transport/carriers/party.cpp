#include "tests/transport/carriers/party.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "transport/routed.hpp"
#include "transport/shm/shm_carrier.hpp"
#include "transport/ucx/ucx_carrier.hpp"

namespace kintsugi::transport::test {
namespace {
template <class T>
T must(Result<T> result) {
  if (!result) assertion_failed(result.error().message.c_str(), __FILE__, __LINE__, "set-up of a test");
  return std::move(result).value();
}
}  // namespace

std::string to_string(Carrier carrier) {
  switch (carrier) {
    case Carrier::shm: return "shm";
    case Carrier::ucx: return "ucx";
    case Carrier::routed: return "routed";
  }
  KINTSUGI_UNREACHABLE();
}

Party::Party(Carrier carrier, const PartyShape& shape) : carrier_(carrier), shape_(shape) {
  rings_ = must(shm::create_ring_segment({.ranks = shape.ranks, .slots = shape.window}));
  for (std::uint32_t i = 0; i < shape.ranks; ++i) {
    memory_.push_back(must(shm::create_shared_memory("test-arena", shape.memory_bytes)));
  }
  for (std::uint32_t i = 0; i < shape.ranks * shape.ranks; ++i) {
    std::array<int, 2> ends{};
    KINTSUGI_ASSERT(pipe2(ends.data(), O_CLOEXEC) == 0);
    addresses_.push_back({FileDescriptor(ends[0]), FileDescriptor(ends[1])});
  }
}

Party::Rank Party::open(std::uint32_t rank, Fence fence) const {
  Rank opened;
  opened.memory = must(shm::Mapping::map(memory_[rank].get(), shm::Access::read_write));
  if (carrier_ == Carrier::shm) {
    opened.link = open_shm(rank, fence, opened);
  } else if (carrier_ == Carrier::ucx) {
    opened.link = open_ucx(rank, fence);
  } else {
    // As if ranks 2i and 2i + 1 shared a node.
    Routed::Route by_shm{open_shm(rank, fence, opened), {}};
    Routed::Route by_ucx{open_ucx(rank, fence), {}};
    for (std::uint32_t peer = 0; peer < shape_.ranks; ++peer) {
      if (peer != rank) (peer / 2 == rank / 2 ? by_shm : by_ucx).peers.push_back({peer});
    }
    std::vector<Routed::Route> routes;
    routes.push_back(std::move(by_shm));
    routes.push_back(std::move(by_ucx));
    opened.link = std::make_unique<Routed>(std::move(routes));
  }
  return opened;
}

std::unique_ptr<PointToPoint> Party::open_shm(std::uint32_t rank, Fence fence, const Rank& opened) const {
  shm::ShmCarrier::Config config{{rank}, {}, fence};
  for (std::uint32_t i = 0; i < shape_.ranks; ++i) config.node_ranks.push_back({i});
  auto carrier = must(shm::ShmCarrier::open(config, rings_.get()));
  carrier->register_own_arena(opened.memory.bytes());
  for (std::uint32_t i = 0; i < shape_.ranks; ++i) {
    if (i == rank) continue;
    const auto registered = carrier->register_peer_arena({i}, memory_[i].get());
    KINTSUGI_ASSERT(registered.ok());
  }
  return carrier;
}

std::unique_ptr<PointToPoint> Party::open_ucx(std::uint32_t rank, Fence fence) const {
  ucx::UcxCarrier::Config config{.self = {rank}, .fence = fence, .window = shape_.window};
  auto carrier = must(ucx::UcxCarrier::open(config, must(ucx::UcxContext::create("lo"))));
  const std::uint64_t length = carrier->address().size();
  std::map<RankId, std::vector<std::byte>> addresses;
  for (std::uint32_t to = 0; to < shape_.ranks; ++to) {
    const int fd = addresses_[rank * shape_.ranks + to].write.get();
    KINTSUGI_ASSERT(write(fd, &length, sizeof length) == sizeof length);
    KINTSUGI_ASSERT(write(fd, carrier->address().data(), length) == static_cast<ssize_t>(length));
  }
  for (std::uint32_t from = 0; from < shape_.ranks; ++from) {
    const int fd = addresses_[from * shape_.ranks + rank].read.get();
    std::uint64_t bytes = 0;
    KINTSUGI_ASSERT(read(fd, &bytes, sizeof bytes) == sizeof bytes);
    auto& address = addresses[{from}];
    address.resize(bytes);
    KINTSUGI_ASSERT(read(fd, address.data(), bytes) == static_cast<ssize_t>(bytes));
  }
  const auto connected = carrier->connect(addresses);
  KINTSUGI_ASSERT(connected.ok());
  return carrier;
}

std::vector<Party::Rank> Party::open_all(const std::vector<Fence>& fences) const {
  std::vector<Rank> ranks(shape_.ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < shape_.ranks; ++i) {
    threads.emplace_back([&, i] { ranks[i] = open(i, fences.empty() ? kFence : fences[i]); });
  }
  for (auto& t : threads) t.join();
  return ranks;
}

Instant in(Duration d) {
  return SteadyClock().now() + d;
}

MessageKey key(std::uint64_t step, MessageKind kind, std::uint32_t item, std::uint32_t part) {
  return {kind, {step}, item, part};
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  std::uint32_t x = seed * 2654435761U + 1;
  for (auto& b : out) b = static_cast<std::byte>((x = x * 1664525U + 1013904223U) >> 24);
  return out;
}

}  // namespace kintsugi::transport::test
