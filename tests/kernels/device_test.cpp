#include "kernels/device.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "base/file.hpp"
#include "base/units.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/fake/fake_device.hpp"
#include "kernels/ops.hpp"

namespace kintsugi::kernels {
namespace {

Instant soon() {
  return SteadyClock().now() + seconds(60);
}

std::vector<std::unique_ptr<Device>> all_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(cpu::make_cpu_device(2));
  devices.push_back(fake::make_fake_device({2, 1}));
  return devices;
}

std::vector<float> to_host(Device& device, Stream& stream, const View& view) {
  std::vector<float> out(static_cast<std::size_t>(view.count));
  device.copy_to_host(stream, out.data(), view);
  EXPECT_TRUE(stream.synchronize(soon()));
  return out;
}

TEST(Device, memory_is_zero_aligned_and_copied_in_stream_order) {
  for (const auto& device : all_devices()) {
    SCOPED_TRACE(device->traits().kind);
    const auto stream = device->create_stream();
    for (const std::size_t bytes : {std::size_t{4}, 100 * kKiB, 5 * kMiB}) {
      const auto buffer = std::move(*device->allocate(bytes));
      EXPECT_EQ(buffer->view().bytes(), bytes);
      EXPECT_EQ(buffer->view().data.value % 64, 0u);
      const View all = buffer->as(DType::float32, 0, static_cast<std::int64_t>(bytes / 4));
      for (const float v : to_host(*device, *stream, all)) ASSERT_EQ(v, 0);
      const std::vector<float> ones(bytes / 4, 1.0f);
      device->copy_to_device(*stream, all, ones.data());
      device->ops().add(*stream, all, all, all);
      for (const float v : to_host(*device, *stream, all)) ASSERT_EQ(v, 2);
    }
  }
}

TEST(Device, shared_memory_is_one_memory) {
  for (const auto& device : all_devices()) {
    SCOPED_TRACE(device->traits().kind);
    const FileDescriptor memory(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(memory.get(), 3 * 4096), 0);
    const auto written = std::move(*device->map_shared(memory.get(), 4096, 4096, true));
    const auto seen = std::move(*device->map_shared(memory.get(), 0, 3 * 4096, false));
    const auto stream = device->create_stream();
    device->ops().fill(*stream, written->as(DType::float32, 0, 1024), 5.0f);
    const std::vector<float> values = to_host(*device, *stream, seen->as(DType::float32, 0, 3 * 1024));
    EXPECT_EQ(values[1023], 0);
    EXPECT_EQ(values[1024], 5);
    EXPECT_EQ(values[2047], 5);
    EXPECT_EQ(values[2048], 0);
  }
}

TEST(Device, memory_that_is_not_there_is_refused_with_both_sizes) {
  for (const auto& device : all_devices()) {
    const auto refused = device->allocate(std::size_t{1} << 46);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().action, ErrorAction::tell_user);
    EXPECT_NE(refused.error().message.find("64.0 TiB"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("are free"), std::string::npos) << refused.error().message;
  }
}

TEST(Device, ops_give_the_same_bits_on_the_fake_device_for_every_seed) {
  constexpr LinearShape kShape{33, 65, 129};
  const auto run = [&](Device& device) {
    const auto memory = std::move(*device.allocate(kMiB));
    const auto stream = device.create_stream();
    std::size_t used = 0;
    const auto take = [&](std::int64_t count) {
      const View v = memory->as(DType::float32, used, count);
      used += static_cast<std::size_t>(count) * 4;
      return v;
    };
    const View in = take(33 * 65), weight = take(129 * 65), out = take(33 * 129), norm = take(129), mean = take(33),
               rstd = take(33), total = take(1);
    Ops& ops = device.ops();
    ops.fill(*stream, in, 0.3f);
    ops.fill(*stream, weight, 0.7f);
    ops.fill(*stream, norm, 1.1f);
    ops.linear_forward(*stream, out, in, weight, {}, kShape);
    ops.fill(*stream, out.slice(5, 100), -2.0f);
    ops.layernorm_forward(*stream, out, mean, rstd, out, norm, norm, 129, 1e-5f);
    ops.sum(*stream, total, out);
    std::vector<float> result = to_host(device, *stream, out);
    result.push_back(to_host(device, *stream, total)[0]);
    return result;
  };
  const std::vector<float> expected = run(*cpu::make_cpu_device(1));
  for (std::uint64_t seed = 0; seed < 4; ++seed) EXPECT_EQ(run(*fake::make_fake_device({2, seed})), expected);
}

}  // namespace
}  // namespace kintsugi::kernels
