// A device: memory that only kernels and explicit copies touch, and in-order streams of work on it.
//
// The form is asynchronous, as a GPU wants it: every call enqueues and returns; a stream runs its work in order; events
// order streams, transports and the host against one another. Callers never dereference a DevicePtr. The CPU backend
// runs each stream on a thread of its own; the fake backend also keeps its memory unreadable to the host, so that a
// caller who forgets this rule is caught in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/event.hpp"
#include "base/result.hpp"

namespace kintsugi::kernels {

enum class DType : std::uint8_t { float32, bfloat16, int32, byte };

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::float32: return 4;
    case DType::bfloat16: return 2;
    case DType::int32: return 4;
    case DType::byte: return 1;
  }
  return 0;
}
const char* to_string(DType t);

// An address in device memory; opaque to the host.
struct DevicePtr {
  std::uintptr_t value = 0;
  constexpr auto operator<=>(const DevicePtr&) const = default;
};

// `count` contiguous elements on a device. A view owns nothing. An empty view (count 0) stands for "absent".
struct View {
  DevicePtr data;
  DType dtype = DType::float32;
  std::int64_t count = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
  bool empty() const { return count == 0; }
  // Elements [first, first + n).
  View slice(std::int64_t first, std::int64_t n) const {
    KINTSUGI_ASSERT(first >= 0 && n >= 0 && first + n <= count);
    return {{data.value + static_cast<std::uintptr_t>(first) * size_of(dtype)}, dtype, n};
  }
};

// Device memory that its owner frees by letting go. 64-byte aligned, zero-filled, huge pages advised from 2 MiB.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual View view() const = 0;  // dtype byte
  // The whole buffer, or `count` elements from byte `offset`, as another type.
  View as(DType dtype, std::size_t offset_bytes, std::int64_t count) const {
    const View all = view();
    KINTSUGI_ASSERT(offset_bytes + static_cast<std::size_t>(count) * size_of(dtype) <= all.bytes());
    return {{all.data.value + offset_bytes}, dtype, count};
  }
};

// An in-order queue of work. Enqueuing is thread safe and never runs work on the calling thread; it blocks only while
// the bounded queue is full. After a failure the stream drops all further work until `recover`. From work that is running
// on this stream, enqueued work runs at once, in place, as part of its caller (a transport sums what it has just received).
class Stream {
 public:
  virtual ~Stream() = default;

  // A host function that runs in stream order on the stream's own thread; it may block (transports wait here), and only
  // here may Device::host_address be used. A failed result poisons the stream. `name` is a string literal for traces.
  virtual void enqueue(const char* name, std::function<Result<void>()> work) = 0;
  // Work enqueued later starts only when `event` is done; if it failed, the stream is poisoned with its error.
  virtual void wait(const Event& event) = 0;
  // An event that ends when all work enqueued so far has: with success, or with the stream's error.
  virtual Event record() = 0;
  // record() and wait for it: host waits belong at the vote and at cancel only.
  Result<void> synchronize(Instant deadline) { return record().wait(deadline); }
  // Forgets the error once all enqueued work was dropped. Called by the owner, at a generation change.
  virtual void recover() = 0;
};

class Ops;

struct DeviceTraits {
  std::string kind;            // "cpu", "fake"
  std::string kernel_variant;  // kind, ISA, library versions: whatever may show in the bits
  int threads = 1;             // compute threads of a stream; does not show in the bits
  // Sustained float32 fused-multiply-add peak is measured by bench/, never assumed.
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceTraits& traits() const = 0;
  virtual Ops& ops() = 0;
  virtual std::unique_ptr<Stream> create_stream() = 0;

  // Error{tell_user} with the size asked for and what is free when memory is short.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) = 0;
  // Device memory over `bytes` of a memfd from `offset_bytes` (page aligned), shared with other processes that hold
  // the descriptor. The descriptor is not kept. Read-only mappings trap writes.
  virtual Result<std::unique_ptr<Buffer>> map_shared(int memfd, std::size_t offset_bytes, std::size_t bytes,
                                                     bool writable) = 0;

  // Copies ordered on `stream`. Host memory must stay valid until the work has run.
  virtual void copy_to_device(Stream& stream, View to, const void* from) = 0;
  virtual void copy_to_host(Stream& stream, void* to, View from) = 0;

  // Host memory that the device reads and writes where it lies: shared memory that a transport has registered.
  virtual View host_visible(std::span<const std::byte> bytes, DType dtype) = 0;
  // Where the host may reach `view`; only inside work that runs on a stream, for transports of this device's memory.
  virtual std::byte* host_address(const View& view) = 0;
};

}  // namespace kintsugi::kernels
