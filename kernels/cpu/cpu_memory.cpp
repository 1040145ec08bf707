#include "kernels/cpu/cpu_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "base/file.hpp"
#include "base/units.hpp"

namespace kintsugi::kernels::cpu {

namespace {

constexpr std::size_t kHugePage = 2 * kMiB;
constexpr std::size_t kPage = 4 * kKiB;

// MemAvailable of /proc/meminfo; SIZE_MAX where there is none.
std::size_t available_bytes() {
  std::ifstream lines("/proc/meminfo");
  for (std::string line; std::getline(lines, line);) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kilobytes) == 1) {
      return static_cast<std::size_t>(kilobytes) * kKiB;
    }
  }
  return SIZE_MAX;
}

Error out_of_memory(std::size_t bytes) {
  return {ErrorAction::tell_user, "cannot allocate " + format_bytes(bytes) +
                                      " of device memory: " + format_bytes(available_bytes()) +
                                      " are free; make the model, the microbatch or the number of ranks smaller"};
}

void advise_huge_pages(std::byte* data, std::size_t bytes) {
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // advice: a kernel without them is only slower
}

// Every page now and not in the middle of the first steps: a first touch costs more than the arithmetic on the page, and a
// machine that lacks the memory says so here. Kernels before 5.14 do not know the advice and touch pages later.
Result<void> populate(std::byte* data, std::size_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return out_of_memory(bytes);
  return {};
}

}  // namespace

void Mapping::reset() {
  if (data_ != nullptr) KINTSUGI_ASSERT(munmap(data_, bytes_) == 0);
  data_ = nullptr;
}

Result<void> check_available(std::size_t bytes) {
  if (bytes > available_bytes()) return out_of_memory(bytes);
  return {};
}

Result<Mapping> map_private(std::size_t bytes) {
  KINTSUGI_ASSERT(bytes > 0);
  KINTSUGI_TRY(check_available(bytes));
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const std::size_t wanted = align_up(bytes, alignment);
  const std::size_t reserved = wanted + alignment - kPage;
  void* const raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return out_of_memory(bytes);
  auto* const start = static_cast<std::byte*>(raw);
  const std::size_t skipped =
      align_up(reinterpret_cast<std::uintptr_t>(raw), alignment) - reinterpret_cast<std::uintptr_t>(raw);
  const std::size_t rest = reserved - skipped - wanted;
  if (skipped > 0) munmap(start, skipped);
  if (rest > 0) munmap(start + skipped + wanted, rest);
  Mapping mapping(start + skipped, wanted);
  advise_huge_pages(start + skipped, wanted);
  KINTSUGI_TRY(populate(start + skipped, wanted));
  return mapping;
}

Result<Mapping> map_memfd(int memfd, std::size_t offset_bytes, std::size_t bytes, Access access) {
  KINTSUGI_ASSERT(bytes > 0 && offset_bytes % kPage == 0);
  const int protection = access == Access::none   ? PROT_NONE
                         : access == Access::read ? PROT_READ
                                                  : PROT_READ | PROT_WRITE;
  void* const data = mmap(nullptr, bytes, protection, MAP_SHARED, memfd, static_cast<off_t>(offset_bytes));
  if (data == MAP_FAILED) {
    return Error{ErrorAction::tell_user,
                 errno_message("cannot map " + format_bytes(bytes) + " of memory shared through descriptor",
                               std::to_string(memfd))};
  }
  Mapping mapping(static_cast<std::byte*>(data), bytes);
  advise_huge_pages(static_cast<std::byte*>(data), bytes);
  if (access == Access::read_write) KINTSUGI_TRY(populate(static_cast<std::byte*>(data), bytes));
  return mapping;
}

}  // namespace kintsugi::kernels::cpu
