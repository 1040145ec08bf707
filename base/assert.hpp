// Assertions that stay on in every build. A bug ends the process at once; its supervisor decides what follows.
#pragma once

namespace kintsugi {

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const char* why) noexcept;

}  // namespace kintsugi

#define KINTSUGI_ASSERT(condition)                     \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::kintsugi::assertion_failed(#condition, __FILE__, __LINE__, nullptr))

// `why` is a string literal that says which rule was broken.
#define KINTSUGI_ASSERT_MSG(condition, why)            \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::kintsugi::assertion_failed(#condition, __FILE__, __LINE__, (why)))

#define KINTSUGI_UNREACHABLE() ::kintsugi::assertion_failed("unreachable", __FILE__, __LINE__, nullptr)
