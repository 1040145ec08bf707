// What can be expected to go wrong travels as a value. The code of an Error says what the caller must do.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/assert.hpp"

namespace kintsugi {

enum class ErrorAction : unsigned char {
  retry,            // the same call may go through later
  fail_link,        // this peer cannot be reached any more: close the link to it
  end_generation,   // the data plane of this generation is lost
  restart_process,  // this process can no longer be trusted
  tell_user,        // configuration or input: exit code 2
  refuse,           // the cluster refused or could not be reached: exit code 3
  cancelled,        // somebody asked for the end; not a fault
};

const char* to_string(ErrorAction action);

struct Error {
  ErrorAction action = ErrorAction::tell_user;
  // What happened, where (file, line, key, peer), and what to do next.
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    KINTSUGI_ASSERT_MSG(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  const T& value() const& {
    KINTSUGI_ASSERT_MSG(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  T&& value() && {
    KINTSUGI_ASSERT_MSG(ok(), "value() of a failed Result");
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    KINTSUGI_ASSERT_MSG(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    KINTSUGI_ASSERT_MSG(!ok(), "error() of a Result that is fine");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace kintsugi

// Returns the error of `expression` from the enclosing function, or goes on.
#define KINTSUGI_TRY(expression)                                         \
  do {                                                                   \
    if (auto kintsugi_try_result = (expression); !kintsugi_try_result) { \
      return kintsugi_try_result.error();                                \
    }                                                                    \
  } while (false)

// KINTSUGI_TRY_ASSIGN(auto value, expression): binds the value, or returns the error.
#define KINTSUGI_TRY_ASSIGN(target, expression) \
  KINTSUGI_TRY_ASSIGN_IMPL(KINTSUGI_CONCAT(kintsugi_result_, __LINE__), target, expression)
#define KINTSUGI_TRY_ASSIGN_IMPL(name, target, expression) \
  auto name = (expression);                                \
  if (!name) return name.error();                          \
  target = std::move(name).value()
#define KINTSUGI_CONCAT(a, b) KINTSUGI_CONCAT_IMPL(a, b)
#define KINTSUGI_CONCAT_IMPL(a, b) a##b
