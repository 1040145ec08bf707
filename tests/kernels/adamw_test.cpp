#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>

#include "base/digest.hpp"
#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

constexpr AdamwScalars kScalars{.learning_rate = 3e-4f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .epsilon = 1e-8f,
                                .weight_decay = 0.1f,
                                .bias_correction1 = 0.271f,
                                .bias_correction2 = 0.142625f,
                                .clip_scale = 0.37f};

struct State {
  std::vector<float> master, moment1, moment2, gradient;
};

State random_state(std::int64_t count, std::uint64_t seed) {
  State s{random_vector<float>(count, 1, seed), random_vector<float>(count, 0.1, seed + 1),
          random_vector<float>(count, 0.01, seed + 2), random_vector<float>(count, 1, seed + 3)};
  for (float& v : s.moment2) v = std::abs(v);
  return s;
}

// The written sequence of kernels/ops.hpp, one operation a line; volatile keeps each rounding apart.
void update_one(State& s, std::size_t i, bool decays) {
  const AdamwScalars& a = kScalars;
  const volatile float g = s.gradient[i] * a.clip_scale;
  const volatile float rest1 = 1.0f - a.beta1, rest2 = 1.0f - a.beta2;
  const volatile float m0 = a.beta1 * s.moment1[i], m1 = rest1 * g, m = m0 + m1;
  const volatile float square = g * g;
  const volatile float v0 = a.beta2 * s.moment2[i], v1 = rest2 * square, v = v0 + v1;
  const volatile float mhat = m / a.bias_correction1, vhat = v / a.bias_correction2;
  const volatile float root = std::sqrt(vhat);
  const volatile float denominator = root + a.epsilon;
  volatile float u = mhat / denominator;
  if (decays) {
    const volatile float d = a.weight_decay * s.master[i];
    u = u + d;
  }
  const volatile float change = a.learning_rate * u;
  s.master[i] = s.master[i] - change;
  s.moment1[i] = m;
  s.moment2[i] = v;
}

void update_all(State& s, const std::vector<DecayRange>& decay) {
  for (std::size_t i = 0; i < s.master.size(); ++i) {
    bool decays = false;
    for (const DecayRange& r : decay) {
      decays = decays || (static_cast<std::int64_t>(i) >= r.begin && static_cast<std::int64_t>(i) < r.end);
    }
    update_one(s, i, decays);
  }
}

std::array<std::byte, 16> expected_digest(const State& s) {
  std::vector<float> stream;  // in the digest's order
  for (std::size_t begin = 0; begin < s.master.size(); begin += 4096) {
    const std::size_t end = std::min(begin + 4096, s.master.size());
    for (const auto* part : {&s.master, &s.moment1, &s.moment2}) {
      stream.insert(stream.end(), part->begin() + static_cast<std::ptrdiff_t>(begin),
                    part->begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  const Digest digest = digest_of(std::as_bytes(std::span(stream)));
  std::array<std::byte, 16> bytes;
  std::memcpy(bytes.data(), &digest.high, 8);
  std::memcpy(bytes.data() + 8, &digest.low, 8);
  return bytes;
}

template <class T>
class Adamw : public ::testing::Test {};
TYPED_TEST_SUITE(Adamw, Storages);

TYPED_TEST(Adamw, state_published_weights_and_digest_are_the_written_sequence_on_every_target) {
  prepare_compute_thread();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    ThreadPool pool(1);
    for (const std::int64_t count : {1, 3, 17, 100, 257, 4096, 9001}) {
      const std::vector<DecayRange> decay{{0, count / 3}, {count / 2, count}};
      State state = random_state(count, 7), expected = state;
      update_all(expected, decay);
      std::vector<TypeParam> published(state.master.size());
      std::array<std::byte, 16> digest{}, again{};
      const AdamwShard<TypeParam> shard{state.master.data(),
                                        state.moment1.data(),
                                        state.moment2.data(),
                                        state.gradient.data(),
                                        published.data(),
                                        count,
                                        decay,
                                        kScalars,
                                        digest.data()};
      adamw(pool, std::span(&shard, 1));
      ASSERT_TRUE(same_bits(state.master, expected.master)) << count;
      ASSERT_TRUE(same_bits(state.moment1, expected.moment1)) << count;
      ASSERT_TRUE(same_bits(state.moment2, expected.moment2)) << count;
      for (std::size_t i = 0; i < published.size(); ++i) {
        ASSERT_EQ(to_double(published[i]), to_double(rounded<TypeParam>(state.master[i])));
      }
      EXPECT_EQ(digest, expected_digest(expected)) << count;
      State replica = random_state(count, 7);
      std::array<std::byte, 16> of_replica{};
      const AdamwShard<TypeParam> unpublished{replica.master.data(),
                                              replica.moment1.data(),
                                              replica.moment2.data(),
                                              replica.gradient.data(),
                                              nullptr,
                                              count,
                                              decay,
                                              kScalars,
                                              of_replica.data()};
      adamw(pool, std::span(&unpublished, 1));
      EXPECT_EQ(of_replica, digest) << "publishing shows in the bits";
      state_digest(pool, again.data(), state.master.data(), state.moment1.data(), state.moment2.data(), count);
      EXPECT_EQ(again, digest);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TYPED_TEST(Adamw, shards_spread_over_threads_get_the_bits_of_shards_alone) {
  prepare_compute_thread();
  constexpr std::int64_t kCount = 5000;
  const auto run = [](ThreadPool& pool) {
    std::vector<State> states;
    for (std::uint64_t s = 0; s < 5; ++s) states.push_back(random_state(kCount, 10 * s));
    std::vector<TypeParam> published(5 * kCount);
    std::vector<std::byte> digests(5 * 16);
    std::vector<AdamwShard<TypeParam>> shards;
    for (std::size_t s = 0; s < 5; ++s) {
      shards.push_back({states[s].master.data(),
                        states[s].moment1.data(),
                        states[s].moment2.data(),
                        states[s].gradient.data(),
                        published.data() + s * kCount,
                        kCount,
                        {},
                        kScalars,
                        digests.data() + s * 16});
    }
    adamw(pool, std::span<const AdamwShard<TypeParam>>(shards));
    return digests;
  };
  expect_threads_do_not_show(run);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
