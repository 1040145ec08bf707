#include "kernels/cpu/cpu_device.hpp"

#include <hwy/targets.h>

#include <algorithm>
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/cpu_ops.hpp"
#include "kernels/cpu/cpu_stream.hpp"

namespace kintsugi::kernels::cpu {

namespace {

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(Mapping mapping, std::size_t bytes) : mapping_(std::move(mapping)), bytes_(bytes) {}
  View view() const override {
    return {{reinterpret_cast<std::uintptr_t>(mapping_.data())}, DType::byte, static_cast<std::int64_t>(bytes_)};
  }

 private:
  Mapping mapping_;
  std::size_t bytes_;
};

class CpuDevice final : public Device, private AddressSpace {
 public:
  explicit CpuDevice(int threads) : traits_{"cpu", cpu_kernel_variant(), threads}, ops_(*this) {}

  const DeviceTraits& traits() const override { return traits_; }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<CpuStream>(CpuStream::Options{traits_.threads, std::nullopt});
  }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override {
    KINTSUGI_TRY_ASSIGN(Mapping mapping, map_private(std::max<std::size_t>(bytes, 1)));
    return std::unique_ptr<Buffer>(std::make_unique<CpuBuffer>(std::move(mapping), bytes));
  }
  Result<std::unique_ptr<Buffer>> map_shared(int memfd, std::size_t offset_bytes, std::size_t bytes,
                                             bool writable) override {
    KINTSUGI_TRY_ASSIGN(Mapping mapping,
                        map_memfd(memfd, offset_bytes, bytes, writable ? Access::read_write : Access::read));
    return std::unique_ptr<Buffer>(std::make_unique<CpuBuffer>(std::move(mapping), bytes));
  }

  void copy_to_device(Stream& stream, View to, const void* from) override {
    launch_copy(stream, resolve(to), from, to.bytes());
  }
  void copy_to_host(Stream& stream, void* to, View from) override {
    launch_copy(stream, to, resolve(from), from.bytes());
  }

  View host_visible(std::span<const std::byte> bytes, DType dtype) override {
    return {{reinterpret_cast<std::uintptr_t>(bytes.data())},
            dtype,
            static_cast<std::int64_t>(bytes.size() / size_of(dtype))};
  }
  std::byte* host_address(const View& view) override { return resolve(view); }
  std::byte* resolve(const View& view) const override { return reinterpret_cast<std::byte*>(view.data.value); }

 private:
  DeviceTraits traits_;
  CpuOps ops_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

std::string cpu_kernel_variant() {
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  const dnnl_version_t* const version = dnnl_version();
  char isa[16];
  std::snprintf(isa, sizeof isa, "%#x", static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
  return std::string("cpu ") + hwy::TargetName(targets & -targets) + " onednn " + std::to_string(version->major) + "." +
         std::to_string(version->minor) + "." + std::to_string(version->patch) + " isa " + isa;
}

}  // namespace kintsugi::kernels::cpu
