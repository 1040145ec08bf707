// Files with secrets: whole or absent, and never readable by others, not even for a moment.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace kintsugi::transport {

// Mode 0600 from its creation; temporary, fsync, rename, fsync of the directory.
Result<void> write_private_file(const std::string& path, std::string_view text);
// Error{tell_user} when others may read or write the file.
Result<std::string> read_private_file(const std::string& path, std::size_t limit_bytes);

}  // namespace kintsugi::transport
