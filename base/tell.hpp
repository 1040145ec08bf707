// Words for a person on standard error. Nobody may be listening, and no job ends for that: a write that fails is forgotten.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace kintsugi {

template <class... Arguments>
void tell(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace kintsugi
