// Bursts of bfloat16 multiply-adds for kernels/cpu/peak.hpp; Highway 1.0 has no word for them.
#pragma once

#include <cstdint>

namespace kintsugi::kernels::cpu {

// Returns the floating-point operations done.
using Bf16Burst = double (*)(std::int64_t rounds);
// nullptr where the ISA has no bfloat16 products.
Bf16Burst best_bf16_burst();

}  // namespace kintsugi::kernels::cpu
