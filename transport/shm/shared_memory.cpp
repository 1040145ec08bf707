#include "transport/shm/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kintsugi::transport::shm {
namespace {
Error system_error(const char* what, const char* which) {
  return {ErrorAction::tell_user, errno_message(what, which)};
}
}  // namespace

Result<FileDescriptor> create_shared_memory(const char* name, std::size_t bytes) {
  FileDescriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return system_error("create shared memory", name);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return system_error("size shared memory", name);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return system_error("seal shared memory", name);
  return fd;
}

Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<Mapping> Mapping::map(int memfd, Access access) {
  struct stat status {};
  if (fstat(memfd, &status) != 0 || status.st_size <= 0) return system_error("inspect shared memory", "memfd");
  const int seals = fcntl(memfd, F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!sealed && fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return system_error("seal shared memory (create it with MFD_ALLOW_SEALING)", "memfd");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* at = mmap(nullptr, size, protection, MAP_SHARED, memfd, 0);
  if (at == MAP_FAILED) return system_error("map shared memory", "memfd");
  madvise(at, size, MADV_HUGEPAGE);  // advice only: without huge pages in tmpfs it changes nothing
  return Mapping(std::span(static_cast<std::byte*>(at), size));
}

}  // namespace kintsugi::transport::shm
