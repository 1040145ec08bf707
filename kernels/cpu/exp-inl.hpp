// e^x and the logistic function for float32 vectors: Cody and Waite's reduction x = n ln 2 + r and a polynomial for
// (e^r - 1 - r) / r^2, least squares on |r| <= ln(2) / 2 (relative error 4e-9, so the result is within 2 ulp).
// Unlike Highway's Exp a NaN stays a NaN, so that a broken activation reaches the loss and the vote.
// Like Highway's own -inl headers this is compiled once a target.
#if defined(KINTSUGI_KERNELS_CPU_EXP_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KINTSUGI_KERNELS_CPU_EXP_INL_HPP
#undef KINTSUGI_KERNELS_CPU_EXP_INL_HPP
#else
#define KINTSUGI_KERNELS_CPU_EXP_INL_HPP
#endif

#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {

// For x <= 0 (a rounding error above is fine). Zero below the smallest normal number, -infinity included.
HWY_INLINE FloatVector exp_nonpositive(Float d, FloatVector x) {
  const hn::RebindToSigned<Float> lanes;
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);  // 15 bits: n times it is exact
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.37512791e-3f), r, hn::Set(d, 8.36895178e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.16695387e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66665182e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.99999886e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::BitCast(lanes, shifted), hn::Set(lanes, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(p, power));
}

struct Logistic {
  FloatVector value;  // 1 / (1 + e^-x)
  FloatVector slope;  // value * (1 - value), without the cancellation
};

HWY_INLINE Logistic logistic(Float d, FloatVector x) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  const auto larger = hn::Div(one, hn::Add(one, e));
  const auto smaller = hn::Mul(e, larger);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), smaller, larger), hn::Mul(larger, smaller)};
}

}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
