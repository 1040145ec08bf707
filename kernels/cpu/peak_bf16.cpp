#include "kernels/cpu/peak_bf16.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kintsugi::kernels::cpu {

#if defined(__x86_64__)

namespace {

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) double run_vdpbf16ps(std::int64_t rounds) {
  const __m512 zero = _mm512_setzero_ps();
  const __m512bh x = _mm512_cvtne2ps_pbh(zero, zero);
  __m512 a0 = zero, a1 = zero, a2 = zero, a3 = zero, a4 = zero, a5 = zero, a6 = zero, a7 = zero;
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = _mm512_dpbf16_ps(a0, x, x), a1 = _mm512_dpbf16_ps(a1, x, x), a2 = _mm512_dpbf16_ps(a2, x, x);
    a3 = _mm512_dpbf16_ps(a3, x, x), a4 = _mm512_dpbf16_ps(a4, x, x), a5 = _mm512_dpbf16_ps(a5, x, x);
    a6 = _mm512_dpbf16_ps(a6, x, x), a7 = _mm512_dpbf16_ps(a7, x, x);
    asm volatile("" : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5), "+v"(a6), "+v"(a7));
  }
  return static_cast<double>(rounds) * 8 * 64;
}

// Linux gives a process the tile registers when it asks (Documentation/x86/xstate.rst).
bool have_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  // Leaf 7, edx: bit 22 is AMX-BF16. clang 14's __builtin_cpu_supports does not know it.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool listed = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1) != 0;
  return listed && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

__attribute__((target("amx-tile,amx-bf16"))) double run_tdpbf16ps(std::int64_t rounds) {
  struct alignas(64) Configuration {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  };
  static const Configuration configuration;  // in memory: the instruction reads all of it
  _tile_loadconfig(&configuration);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (std::int64_t i = 0; i < rounds / 4; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return static_cast<double>(rounds / 4) * 4 * (16 * 16 * 32 * 2);
}

}  // namespace

Bf16Burst best_bf16_burst() {
  if (have_tiles()) return run_tdpbf16ps;
  if (__builtin_cpu_supports("avx512bf16")) return run_vdpbf16ps;
  return nullptr;
}

#else

Bf16Burst best_bf16_burst() {
  return nullptr;
}

#endif

}  // namespace kintsugi::kernels::cpu
