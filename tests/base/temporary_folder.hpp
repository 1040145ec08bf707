// A folder that is gone with the object; for tests that write files.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.hpp"

namespace kintsugi {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kintsugi-test-XXXXXX").string();
    KINTSUGI_ASSERT(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(std::string_view name) const { return (path_ / name).string(); }
  std::filesystem::path path() const { return path_; }
  // Makes the folders above it, too. Returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }
  template <class T>
  std::string write_values(std::string_view name, const std::vector<T>& values) const {
    return write(name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }

 private:
  std::filesystem::path path_;
};

}  // namespace kintsugi
