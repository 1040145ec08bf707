// All-reduce of one float32 array a rank, in place: reduce-scatter by the canonical tree with one lane a rank, then
// all-gather. Slices are lent whole where they lie; the owner of a slice sums it chunk by chunk, and lends each chunk
// on while it is still in the cache. Training moves the same bytes shard by shard; benchmarks measure them here.
#pragma once

#include <vector>

#include "transport/collectives/party.hpp"

namespace kintsugi::transport::collectives {

// Elements [first, first + count) of the array.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Slice `index` of `slices` over `elements`: whole cache lines where the array is long enough, sizes as even as that
// allows; the last takes the rest.
Slice slice_of(std::int64_t elements, std::int64_t slices, std::int64_t index);

// All ranks of `ranks` (in one order) call it with arrays of one size and a fresh `step`. data (n) f32: the sum over
// ranks, in the tree's order, on return; the array may then be changed.
Result<void> all_reduce_tree(const Party& party, const std::vector<RankId>& ranks, kernels::View data, Step step,
                             Instant deadline);

}  // namespace kintsugi::transport::collectives
