// What this machine can do, measured: the limits that reports put rates against, in the same run.
#pragma once

#include <cstddef>

namespace kintsugi::kernels::cpu {

// Sustained float32 fused-multiply-add rate, floating-point operations a second (a multiply-add counts two), of
// `threads` threads at once; takes about 0.1 s.
double measure_fma_peak(int threads);
// The same for bfloat16 products with float32 sums, by the widest instruction of the ISA (AMX, else vdpbf16ps); 0
// where it has none.
double measure_bf16_peak(int threads);
// STREAM's triad (McCalpin 1995) over three arrays of `bytes` each: bytes read and written a second.
double measure_triad(int threads, std::size_t bytes);

}  // namespace kintsugi::kernels::cpu
