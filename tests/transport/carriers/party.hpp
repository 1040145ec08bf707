// Ranks that talk over one of the carriers: what they share is made first, then each rank opens its end, in a thread of
// this process or after a fork.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "transport/point_to_point.hpp"
#include "transport/shm/shared_memory.hpp"

namespace kintsugi::transport::test {

enum class Carrier : unsigned char { shm, ucx, routed };
std::string to_string(Carrier carrier);

struct PartyShape {
  std::uint32_t ranks = 2;
  std::uint32_t window = 512;  // unreleased messages a pair
  std::size_t memory_bytes = std::size_t{128} << 20;
};

constexpr Fence kFence{{7}, {1}, {3, 4}};

class Party {
 public:
  Party(Carrier carrier, const PartyShape& shape);

  struct Rank {
    std::unique_ptr<PointToPoint> link;
    shm::Mapping memory;  // lent without a copy by shm
  };
  // Blocks until every rank has called it. One thread or process a rank.
  Rank open(std::uint32_t rank, Fence fence = kFence) const;
  // All ranks in this process.
  std::vector<Rank> open_all(const std::vector<Fence>& fences = {}) const;
  int ring_segment() const { return rings_.get(); }

 private:
  std::unique_ptr<PointToPoint> open_shm(std::uint32_t rank, Fence fence, const Rank& opened) const;
  std::unique_ptr<PointToPoint> open_ucx(std::uint32_t rank, Fence fence) const;

  Carrier carrier_;
  PartyShape shape_;
  FileDescriptor rings_;
  std::vector<FileDescriptor> memory_;
  struct Pipe {
    FileDescriptor read, write;
  };
  std::vector<Pipe> addresses_;  // [from * ranks + to]
};

Instant in(Duration d);
MessageKey key(std::uint64_t step, MessageKind kind = MessageKind::partial_sum, std::uint32_t item = 0,
               std::uint32_t part = 0);
std::vector<std::byte> pattern(std::size_t bytes, unsigned seed);

}  // namespace kintsugi::transport::test
