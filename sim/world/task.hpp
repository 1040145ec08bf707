// A coroutine that a simulated process runs: straight-line code that waits for messages and for time, as the blocking code of
// production does. Whoever starts it owns it; to destroy it is the process's sudden death.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "base/assert.hpp"
#include "base/result.hpp"

namespace kintsugi::sim {

// Lazy: begins when awaited or started. Yields Result<void>. Moved, never copied.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> continuation;
    Result<void> result;

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        const std::coroutine_handle<> next = h.promise().continuation;
        return next ? next : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_value(Result<void> value) { result = std::move(value); }
    void unhandled_exception() { std::terminate(); }
  };

  Task() = default;
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      drop();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() { drop(); }

  // Runs to its first wait.
  void start() { handle_.resume(); }
  bool is_running() const { return handle_ && !handle_.done(); }
  bool is_done() const { return handle_ && handle_.done(); }
  const Result<void>& result() const { return handle_.promise().result; }
  void drop() {
    if (handle_) std::exchange(handle_, {}).destroy();
  }

  // co_await task: runs it, then goes on with its result.
  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) {
    handle_.promise().continuation = waiting;
    return handle_;
  }
  Result<void> await_resume() { return std::move(handle_.promise().result); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace kintsugi::sim

// Ends the coroutine with the error of `expression`, a Result<void>, or goes on.
#define KINTSUGI_CO_TRY(expression)                                \
  do {                                                             \
    Result<void> kintsugi_co_result = (expression);                \
    if (!kintsugi_co_result) co_return kintsugi_co_result.error(); \
  } while (false)
