#include "kernels/fake/fake_device.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/ops.hpp"

namespace kintsugi::kernels::fake {
namespace {

Instant soon() {
  return SteadyClock().now() + seconds(60);
}

class FakeDevice : public ::testing::Test {
 protected:
  FakeDevice() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  const std::unique_ptr<Device> device_ = make_fake_device({1, 7});
  const std::unique_ptr<Buffer> buffer_ = std::move(*device_->allocate(4096));
  const View view_ = buffer_->as(DType::float32, 0, 1024);
};
using FakeDeviceDeathTest = FakeDevice;

TEST_F(FakeDeviceDeathTest, a_host_dereference_traps) {
  EXPECT_DEATH(*reinterpret_cast<volatile float*>(view_.data.value) = 1, "");
  EXPECT_DEATH(static_cast<void>(*reinterpret_cast<volatile float*>(view_.data.value)), "");
}

TEST_F(FakeDeviceDeathTest, host_address_outside_a_stream_is_a_bug) {
  EXPECT_DEATH(device_->host_address(view_), "outside work on a stream");
}

TEST_F(FakeDeviceDeathTest, a_view_past_the_end_of_its_buffer_is_a_bug) {
  View longer = view_;
  longer.count = 1025;
  const auto stream = device_->create_stream();
  EXPECT_DEATH(device_->ops().fill(*stream, longer, 0), "past the end");
}

TEST_F(FakeDevice, host_address_reaches_the_memory_from_work_on_a_stream) {
  const auto stream = device_->create_stream();
  device_->ops().fill(*stream, view_, 3.0f);
  float seen = 0;
  stream->enqueue("look", [&]() -> Result<void> {
    std::memcpy(&seen, device_->host_address(view_), sizeof seen);
    return {};
  });
  ASSERT_TRUE(stream->synchronize(soon()));
  EXPECT_EQ(seen, 3);
}

TEST_F(FakeDevice, host_visible_memory_is_read_and_written_where_it_lies) {
  std::vector<float> host(100, 2.0f);
  const View visible = device_->host_visible(std::as_bytes(std::span(host)), DType::float32);
  const auto stream = device_->create_stream();
  device_->ops().add(*stream, visible, visible, visible);
  ASSERT_TRUE(stream->synchronize(soon()));
  EXPECT_EQ(host, std::vector<float>(100, 4.0f));
}

// The writer is held back, so that a reader who does not wait for it must see what was there before.
TEST_F(FakeDevice, a_forgotten_wait_is_noticed_and_a_wait_cures_it) {
  for (const bool remembers : {false, true}) {
    const auto writer = device_->create_stream(), reader = device_->create_stream();
    Event gate;
    writer->wait(gate);
    device_->ops().fill(*writer, view_, 1.0f);
    const Event written = writer->record();
    if (remembers) reader->wait(written);
    std::vector<float> seen(1024, -1.0f);
    device_->copy_to_host(*reader, seen.data(), view_);
    if (!remembers) {
      EXPECT_TRUE(reader->synchronize(soon()));
    }
    gate.signal();
    ASSERT_TRUE(reader->synchronize(soon()));
    ASSERT_TRUE(written.wait(soon()));
    EXPECT_EQ(seen, std::vector<float>(1024, remembers ? 1.0f : 0.0f));
  }
}

TEST_F(FakeDevice, enqueuing_never_runs_work_on_the_caller) {
  const auto stream = device_->create_stream();
  Event gate;
  stream->wait(gate);
  bool ran = false;
  stream->enqueue("late", [&]() -> Result<void> {
    ran = true;
    return {};
  });
  EXPECT_FALSE(ran);
  gate.signal();
  ASSERT_TRUE(stream->synchronize(soon()));
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace kintsugi::kernels::fake
