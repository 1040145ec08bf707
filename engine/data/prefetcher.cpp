#include "engine/data/prefetcher.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/assert.hpp"
#include "base/thread_name.hpp"

namespace kintsugi {

struct Prefetcher::State {
  struct Buffer {
    MicrobatchKey key;
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
  };

  std::shared_ptr<const MicrobatchSource> source;
  std::vector<MicrobatchSlot> first;  // of the step after `from`
  std::vector<MicrobatchSlot> work;   // of every later one
  Step from;
  std::vector<Buffer> buffers;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::size_t> free;   // buffers to fill
  std::deque<std::size_t> ready;  // filled, in order
  std::optional<Error> failed;
  bool stopping = false;
  bool finished = false;

  MicrobatchKey key_of(std::uint64_t place) const {
    if (place < first.size()) return {from, first[place].lane, first[place].microbatch};
    const std::uint64_t later = place - first.size();
    const MicrobatchSlot slot = work[later % work.size()];
    return {Step{from.value + 1 + later / work.size()}, slot.lane, slot.microbatch};
  }

  std::optional<std::size_t> next_free() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return stopping || !free.empty(); });
    if (stopping) return std::nullopt;
    const std::size_t buffer = free.front();
    free.pop_front();
    return buffer;
  }

  void run() {
    for (std::uint64_t ahead = 0; ahead < buffers.size(); ++ahead) source->will_need(key_of(ahead));
    for (std::uint64_t place = 0;; ++place) {
      const std::optional<std::size_t> index = next_free();
      if (!index) break;
      source->will_need(key_of(place + buffers.size()));
      Buffer& buffer = buffers[*index];
      buffer.key = key_of(place);
      const Result<void> filled = source->fill(buffer.key, buffer.tokens, buffer.targets);
      const std::lock_guard lock(mutex);
      if (!filled) {
        failed = filled.error();
        break;
      }
      ready.push_back(*index);
      changed.notify_all();
    }
    const std::lock_guard lock(mutex);
    finished = true;
    changed.notify_all();
  }

  template <class Condition>
  bool wait_until(std::unique_lock<std::mutex>& lock, Instant deadline, Condition condition) {
    if (deadline == kNoDeadline) {
      changed.wait(lock, condition);
      return true;
    }
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
    return changed.wait_until(lock, until, condition);
  }
};

Prefetcher::Lease::Lease(std::shared_ptr<State> state, std::size_t buffer) : state_(std::move(state)), buffer_(buffer) {
  const State::Buffer& filled = state_->buffers[buffer_];
  key_ = filled.key;
  tokens_ = filled.tokens;
  targets_ = filled.targets;
}

Prefetcher::Lease& Prefetcher::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  state_ = std::move(other.state_);
  buffer_ = other.buffer_;
  key_ = other.key_;
  tokens_ = other.tokens_;
  targets_ = other.targets_;
  return *this;
}

void Prefetcher::Lease::release() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->free.push_back(buffer_);
    state_->changed.notify_all();
  }
  state_.reset();
}

Prefetcher::Prefetcher(std::shared_ptr<const MicrobatchSource> source, std::vector<MicrobatchSlot> work, Step from,
                       std::size_t depth, std::optional<std::vector<MicrobatchSlot>> first)
    : state_(std::make_shared<State>()) {
  KINTSUGI_ASSERT(source && !work.empty() && depth >= 1);
  const std::size_t rows = source->rows();
  state_->source = std::move(source);
  state_->first = first ? std::move(*first) : work;
  state_->work = std::move(work);
  state_->from = from;
  state_->buffers.resize(depth);
  for (std::size_t i = 0; i < depth; ++i) {
    state_->buffers[i].tokens.resize(rows);
    state_->buffers[i].targets.resize(rows);
    state_->free.push_back(i);
  }
  thread_ = std::thread([state = state_] {
    name_thread("feeder");
    state->run();
  });
}

Prefetcher::~Prefetcher() {
  if (thread_.joinable()) static_cast<void>(stop(kNoDeadline).ok());
}

Result<Prefetcher::Lease> Prefetcher::take(Instant deadline) {
  std::unique_lock lock(state_->mutex);
  const auto has_outcome = [this] { return state_->stopping || !state_->ready.empty() || state_->failed; };
  if (!state_->wait_until(lock, deadline, has_outcome)) {
    return Error{ErrorAction::retry,
                 "the next microbatch was not read by the deadline; the disk of the token file is slow"};
  }
  if (state_->stopping) return Error{ErrorAction::cancelled, "the prefetcher was stopped"};
  if (state_->ready.empty()) return *state_->failed;
  const std::size_t buffer = state_->ready.front();
  state_->ready.pop_front();
  return Lease(state_, buffer);
}

Result<void> Prefetcher::stop(Instant deadline) {
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    if (!state_->wait_until(lock, deadline, [this] { return state_->finished; })) {
      lock.unlock();
      if (thread_.joinable()) thread_.detach();
      return Error{ErrorAction::restart_process,
                   "a read of the token file did not end by the deadline; check its disk"};
    }
  }
  if (thread_.joinable()) thread_.join();
  return {};
}

}  // namespace kintsugi
