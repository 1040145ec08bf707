// The two digests that name state (DESIGN 8). Both are XXH3-128, integers as little-endian 64-bit words; digests as two
// words, high half first. scripts/state_digest.py computes them a second time from saved files.
//
//   shard digest = over the shard's state in blocks of 4096 elements (the last one shorter), each block as master
//   bytes,
//                  then moment1 bytes, then moment2 bytes: what kernels::Ops::state_digest computes inside the apply.
//   state digest = over: job identity (high, low), step, t, data position,
//                  then for every shard of the job, ids ascending: shard id, shard digest (high, low).
#pragma once

#include <cstdint>
#include <span>

#include "base/digest.hpp"
#include "base/ids.hpp"

namespace kintsugi {

constexpr std::size_t kDigestBlockElements = 4096;

// Where committed state stands.
struct StatePosition {
  Digest job_identity;
  Step step;                        // steps that became final, SKIPs included
  std::uint64_t updates = 0;        // t: COMMITs
  std::uint64_t data_position = 0;  // samples consumed
  auto operator<=>(const StatePosition&) const = default;
};

struct ShardDigest {
  ShardId shard;
  Digest digest;
};

// State of one shard in host memory, three arrays of one length.
struct ShardState {
  std::span<float> master;
  std::span<float> moment1;
  std::span<float> moment2;
};

struct ConstShardState {
  std::span<const float> master;
  std::span<const float> moment1;
  std::span<const float> moment2;
  ConstShardState(std::span<const float> w, std::span<const float> m, std::span<const float> v)
      : master(w), moment1(m), moment2(v) {}
  ConstShardState(const ShardState& state)  // NOLINT(google-explicit-constructor)
      : master(state.master), moment1(state.moment1), moment2(state.moment2) {}
};

Digest shard_digest(ConstShardState state);
// Asserts that ids ascend. All shards of the job, whoever holds them.
Digest state_digest(const StatePosition& position, std::span<const ShardDigest> shards);

}  // namespace kintsugi
