#include "kernels/fake/fake_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <shared_mutex>
#include <utility>

#include "base/file.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/cpu_ops.hpp"
#include "kernels/cpu/cpu_stream.hpp"

namespace kintsugi::kernels::fake {

namespace {

// Which pages of the executor stand behind which device addresses. Thread safe.
class PageTable final : public cpu::AddressSpace {
 public:
  void insert(const cpu::Mapping& device, std::byte* executor) {
    const std::unique_lock lock(mutex_);
    ranges_.emplace(reinterpret_cast<std::uintptr_t>(device.data()), Range{device.bytes(), executor});
  }
  void erase(const cpu::Mapping& device) {
    const std::unique_lock lock(mutex_);
    ranges_.erase(reinterpret_cast<std::uintptr_t>(device.data()));
  }
  // An address of no range is host memory that was made visible to the device.
  std::byte* resolve(const View& view) const override {
    const std::shared_lock lock(mutex_);
    const std::uintptr_t address = view.data.value;
    const auto next = ranges_.upper_bound(address);
    if (next != ranges_.begin()) {
      const auto& [begin, range] = *std::prev(next);
      if (address - begin < range.bytes) {
        KINTSUGI_ASSERT_MSG(address - begin + view.bytes() <= range.bytes, "a view runs past the end of its buffer");
        return range.executor + (address - begin);
      }
    }
    return reinterpret_cast<std::byte*>(address);
  }

 private:
  struct Range {
    std::size_t bytes = 0;
    std::byte* executor = nullptr;
  };
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
};

class FakeBuffer final : public Buffer {
 public:
  FakeBuffer(std::shared_ptr<PageTable> pages, cpu::Mapping device, cpu::Mapping executor, std::size_t bytes)
      : pages_(std::move(pages)), device_(std::move(device)), executor_(std::move(executor)), bytes_(bytes) {
    pages_->insert(device_, executor_.data());
  }
  ~FakeBuffer() override { pages_->erase(device_); }
  View view() const override {
    return {{reinterpret_cast<std::uintptr_t>(device_.data())}, DType::byte, static_cast<std::int64_t>(bytes_)};
  }

 private:
  std::shared_ptr<PageTable> pages_;
  cpu::Mapping device_;    // no access
  cpu::Mapping executor_;  // the same bytes, for work on streams
  std::size_t bytes_;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeOptions options)
      : traits_{"fake", cpu::cpu_kernel_variant(), options.threads}, seed_(options.seed) {}

  const DeviceTraits& traits() const override { return traits_; }
  Ops& ops() override { return ops_; }
  std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<cpu::CpuStream>(cpu::CpuStream::Options{traits_.threads, seed_ + streams_++});
  }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override {
    KINTSUGI_TRY(cpu::check_available(bytes));
    const FileDescriptor memory(memfd_create("kintsugi-fake-device", MFD_CLOEXEC));
    const std::size_t at_least_one = std::max<std::size_t>(bytes, 1);
    if (!memory.valid() || ftruncate(memory.get(), static_cast<off_t>(at_least_one)) != 0) {
      return Error{ErrorAction::tell_user, errno_message("cannot make the memory of", "the fake device")};
    }
    return map(memory.get(), 0, bytes, cpu::Access::read_write);
  }
  Result<std::unique_ptr<Buffer>> map_shared(int memfd, std::size_t offset_bytes, std::size_t bytes,
                                             bool writable) override {
    return map(memfd, offset_bytes, bytes, writable ? cpu::Access::read_write : cpu::Access::read);
  }

  void copy_to_device(Stream& stream, View to, const void* from) override {
    cpu::launch_copy(stream, pages_->resolve(to), from, to.bytes());
  }
  void copy_to_host(Stream& stream, void* to, View from) override {
    cpu::launch_copy(stream, to, pages_->resolve(from), from.bytes());
  }

  View host_visible(std::span<const std::byte> bytes, DType dtype) override {
    return {{reinterpret_cast<std::uintptr_t>(bytes.data())},
            dtype,
            static_cast<std::int64_t>(bytes.size() / size_of(dtype))};
  }
  std::byte* host_address(const View& view) override {
    KINTSUGI_ASSERT_MSG(cpu::CpuStream::on_a_stream(), "device memory was asked for outside work on a stream");
    return pages_->resolve(view);
  }

 private:
  Result<std::unique_ptr<Buffer>> map(int memfd, std::size_t offset_bytes, std::size_t bytes, cpu::Access access) {
    const std::size_t at_least_one = std::max<std::size_t>(bytes, 1);
    KINTSUGI_TRY_ASSIGN(cpu::Mapping device, cpu::map_memfd(memfd, offset_bytes, at_least_one, cpu::Access::none));
    KINTSUGI_TRY_ASSIGN(cpu::Mapping executor, cpu::map_memfd(memfd, offset_bytes, at_least_one, access));
    return std::unique_ptr<Buffer>(std::make_unique<FakeBuffer>(pages_, std::move(device), std::move(executor), bytes));
  }

  DeviceTraits traits_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> streams_{0};
  const std::shared_ptr<PageTable> pages_ = std::make_shared<PageTable>();
  cpu::CpuOps ops_{*pages_};
};

}  // namespace

std::unique_ptr<Device> make_fake_device(FakeOptions options) {
  return std::make_unique<FakeDevice>(options);
}

}  // namespace kintsugi::kernels::fake
