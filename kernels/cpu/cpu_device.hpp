// The CPU as a device: streams are threads, memory is the process's own, addresses are what they say.
#pragma once

#include <memory>

#include "kernels/device.hpp"

namespace kintsugi::kernels::cpu {

// `threads`: compute threads of each stream (the stream's own and threads - 1 helpers).
std::unique_ptr<Device> make_cpu_device(int threads);

// "cpu AVX3 onednn 2.6.3 isa 0x3e7": what may show in the bits.
std::string cpu_kernel_variant();

}  // namespace kintsugi::kernels::cpu
