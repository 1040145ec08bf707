// CpuOps: movement, sums of fixed order, and the update.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/lane_tree.hpp"
#include "kernels/cpu/cpu_ops-inl.hpp"

namespace kintsugi::kernels::cpu {

void CpuOps::fill(Stream& stream, View out, float value) {
  with_type(out.dtype, [&]<class T>(T) {
    launch(stream, "fill",
           [out = at<T>(out), value, count = out.count](ThreadPool& pool) { cpu::fill(pool, out, value, count); });
  });
}

void CpuOps::copy(Stream& stream, View out, View in) {
  check(out.dtype == in.dtype && out.count == in.count);
  if (in.empty()) return;
  launch(stream, "copy",
         [out = addresses_->resolve(out), in = addresses_->resolve(in), bytes = in.bytes()](ThreadPool& pool) {
           cpu::copy(pool, out, in, bytes);
         });
}

void CpuOps::convert(Stream& stream, View out, View in) {
  check(out.count == in.count && out.dtype != in.dtype);
  const auto enqueue = [&]<class To, class From>(To* to, const From* from) {
    launch(stream, "convert", [to, from, count = in.count](ThreadPool& pool) { cpu::convert(pool, to, from, count); });
  };
  if (out.dtype == DType::float32)
    enqueue(at<float>(out), at<const bf16>(in));
  else
    enqueue(at<bf16>(out), at<const float>(in));
}

void CpuOps::add(Stream& stream, View out, View a, View b) {
  check(out.count == a.count && out.count == b.count);
  with_type(out.dtype, [&]<class T>(T) {
    launch(stream, "add",
           [out = at<T>(out), a = at<const T>(a), b = at<const T>(b), count = out.count](ThreadPool& pool) {
             cpu::add(pool, out, a, b, count);
           });
  });
}

void CpuOps::sum(Stream& stream, View out, View in) {
  check(out.count == 1);
  launch(stream, "sum", [out = at<float>(out), in = at<const float>(in), count = in.count](ThreadPool& pool) {
    cpu::sum(pool, out, in, count);
  });
}

void CpuOps::squared_norm(Stream& stream, View out, View in) {
  squared_norms(stream, out, {&in, 1});
}

void CpuOps::squared_norms(Stream& stream, View out, std::span<const View> in) {
  check(out.bytes() == in.size() * sizeof(double));
  std::vector<std::span<const float>> runs;
  for (const View& view : in) runs.emplace_back(at<const float>(view), static_cast<std::size_t>(view.count));
  launch(stream, "squared_norms",
         [out = reinterpret_cast<double*>(addresses_->resolve(out)), runs = std::move(runs)](ThreadPool& pool) {
           cpu::squared_norms(pool, out, runs);
         });
}

void CpuOps::tree_sum(Stream& stream, View out, std::span<const View> nodes, std::span<const std::int64_t> node_lanes,
                      std::int64_t lanes) {
  check(nodes.size() == node_lanes.size() && lanes > 0);
  std::vector<TreeNode> subtrees;
  std::vector<const float*> pointers;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    check(nodes[i].count == out.count);
    const auto count = static_cast<std::uint32_t>(node_lanes[i]);
    subtrees.push_back({first, count});
    pointers.push_back(at<const float>(nodes[i]));
    first += count;
  }
  std::vector<std::uint32_t> merges = LaneTree(static_cast<std::uint32_t>(lanes)).merges_after(subtrees);
  launch(stream, "tree_sum",
         [out = at<float>(out), pointers = std::move(pointers), merges = std::move(merges),
          count = out.count](ThreadPool& pool) { cpu::tree_sum(pool, out, pointers, merges, count); });
}

void CpuOps::adamw(Stream& stream, const AdamwArguments& shard) {
  adamw_many(stream, {&shard, 1});
}

void CpuOps::adamw_many(Stream& stream, std::span<const AdamwArguments> shards) {
  if (shards.empty()) return;
  const auto publishes = std::find_if(shards.begin(), shards.end(), [](const auto& a) { return !a.published.empty(); });
  const DType dtype = publishes == shards.end() ? DType::float32 : publishes->published.dtype;
  with_type(dtype, [&]<class T>(T) { enqueue_adamw<T>(stream, shards); });
}

template <class T>
void CpuOps::enqueue_adamw(Stream& stream, std::span<const AdamwArguments> shards) {
  struct Call {
    std::vector<AdamwShard<T>> shards;
    std::vector<DecayRange> decay;  // of all shards, one after the other
  };
  auto call = std::make_unique<Call>();
  for (const AdamwArguments& a : shards) call->decay.insert(call->decay.end(), a.decay.begin(), a.decay.end());
  const DecayRange* decay = call->decay.data();
  for (const AdamwArguments& a : shards) {
    const std::int64_t n = a.master.count;
    check(a.moment1.count == n && a.moment2.count == n && a.gradient.count == n);
    check_optional(a.published, n);
    check(a.digest.count == 16);
    for (std::size_t i = 0; i < a.decay.size(); ++i) {
      check(a.decay[i].begin <= a.decay[i].end && a.decay[i].end <= n);
      check(a.decay[i].begin >= (i == 0 ? 0 : a.decay[i - 1].end));
    }
    call->shards.push_back({at<float>(a.master),
                            at<float>(a.moment1),
                            at<float>(a.moment2),
                            at<const float>(a.gradient),
                            at<T>(a.published),
                            n,
                            {decay, a.decay.size()},
                            a.scalars,
                            at<std::byte>(a.digest)});
    decay += a.decay.size();
  }
  launch(stream, "adamw", [call = std::move(call)](ThreadPool& pool) {
    cpu::adamw(pool, std::span<const AdamwShard<T>>(call->shards));
  });
}

void CpuOps::state_digest(Stream& stream, View digest, View master, View moment1, View moment2) {
  check(digest.count == 16 && moment1.count == master.count && moment2.count == master.count);
  launch(stream, "state_digest",
         [digest = at<std::byte>(digest), master = at<const float>(master), moment1 = at<const float>(moment1),
          moment2 = at<const float>(moment2), count = master.count](ThreadPool& pool) {
           cpu::state_digest(pool, digest, master, moment1, moment2, count);
         });
}

}  // namespace kintsugi::kernels::cpu
