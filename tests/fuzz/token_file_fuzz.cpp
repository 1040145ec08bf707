// libFuzzer target: token file headers. The first byte chooses the format; the rest is the file.
// A refusal or tokens that fill the file from the header to its end; reading them stays inside it.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/assert.hpp"
#include "engine/data/token_file.hpp"

namespace {

// A file without a name that holds the input, opened through /proc: the whole path of open, mapping and reading.
class InputFile {
 public:
  InputFile() {
    char name[] = "/dev/shm/kintsugi-fuzz-XXXXXX";
    fd_ = ::mkstemp(name);
    KINTSUGI_ASSERT(fd_ >= 0);
    ::unlink(name);
  }
  std::string replace(const std::uint8_t* bytes, std::size_t size) const {
    KINTSUGI_ASSERT(::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, bytes, size, 0) == static_cast<ssize_t>(size));
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace kintsugi;
  static const InputFile input;
  if (size == 0) return 0;
  const auto format = static_cast<TokenFormat>(bytes[0] % 3);
  const auto file = TokenFile::open(input.replace(bytes + 1, size - 1), format);
  if (!file) return 0;
  const std::uint64_t count = (*file)->token_count();
  KINTSUGI_ASSERT(count > 0 && count <= size / 2);
  std::vector<std::int32_t> tokens(count);
  const bool all_inside = (*file)->read(0, tokens, 1000).ok();
  const auto outside = (*file)->first_outside(0, count, 1000);
  KINTSUGI_ASSERT(all_inside == !outside && (!outside || *outside < count));
  (*file)->will_need(0, count);
  return 0;
}
