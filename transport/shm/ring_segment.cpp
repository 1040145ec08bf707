#include "transport/shm/ring_segment.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <type_traits>

#include "base/units.hpp"

namespace kintsugi::transport::shm {
namespace {

static_assert(std::is_trivially_copyable_v<Descriptor>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::uint64_t kMagic = 0x314752494e475455;  // layout 1; a new layout takes a new number
static_assert(sizeof(Descriptor) % 64 == 0);
constexpr std::uint32_t kMaxRanks = 1024;  // of one node

struct Header {
  std::uint64_t magic;
  std::uint64_t ranks;
  std::uint64_t slots;
  std::uint64_t bounce_bytes;
};
constexpr std::size_t kHeaderBytes = 64;
static_assert(sizeof(Header) <= kHeaderBytes);

std::size_t pair_bytes(const RingShape& s) {
  return sizeof(RingIndex) + s.slots * sizeof(Descriptor) + align_up(s.slots * sizeof(std::uint64_t), 64);
}
std::size_t pairs_at(const RingShape& s) {
  return kHeaderBytes + s.ranks * sizeof(Doorbell);
}
std::size_t bounce_at(const RingShape& s) {
  return align_up(pairs_at(s) + std::size_t{s.ranks} * s.ranks * pair_bytes(s), 4096);
}
std::size_t total_bytes(const RingShape& s) {
  return bounce_at(s) + s.ranks * s.bounce_bytes;
}

bool is_sound(const Header& h) {
  return h.magic == kMagic && h.ranks > 0 && h.ranks <= kMaxRanks && std::has_single_bit(h.slots) &&
         h.slots <= (1U << 20) && h.bounce_bytes % 4096 == 0 && h.bounce_bytes <= (std::uint64_t{1} << 40);
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* until,
           std::uint32_t mask) {
  return syscall(SYS_futex, &word, operation, value, until, nullptr, mask);
}

}  // namespace

Result<FileDescriptor> create_ring_segment(const RingShape& shape) {
  const Header header{kMagic, shape.ranks, shape.slots, shape.bounce_bytes};
  KINTSUGI_ASSERT_MSG(is_sound(header), "ring shape: 1..1024 ranks, slots a power of two, whole pages of bounce area");
  KINTSUGI_TRY_ASSIGN(FileDescriptor fd, create_shared_memory("kintsugi-rings", total_bytes(shape)));
  if (pwrite(fd.get(), &header, sizeof header, 0) != sizeof header) {
    return Error{ErrorAction::tell_user, errno_message("cannot write", "ring segment")};
  }
  return fd;
}

Result<RingSegment> RingSegment::attach(int memfd) {
  KINTSUGI_TRY_ASSIGN(Mapping mapping, Mapping::map(memfd, Access::read_write));
  Header header{};
  if (mapping.bytes().size() >= sizeof header) std::memcpy(&header, mapping.bytes().data(), sizeof header);
  RingShape shape;
  if (is_sound(header)) {
    shape = {static_cast<std::uint32_t>(header.ranks), static_cast<std::uint32_t>(header.slots), header.bounce_bytes};
  }
  if (shape.ranks == 0 || mapping.bytes().size() < total_bytes(shape)) {
    return Error{ErrorAction::tell_user,
                 "the descriptor given as ring segment holds none; pass what "
                 "create_ring_segment of the same release returned"};
  }
  return RingSegment(std::move(mapping), shape);
}

Doorbell& RingSegment::doorbell(std::uint32_t rank) const {
  KINTSUGI_ASSERT(rank < shape_.ranks);
  return *reinterpret_cast<Doorbell*>(mapping_.bytes().data() + kHeaderBytes + rank * sizeof(Doorbell));
}

std::byte* RingSegment::pair(std::uint32_t from, std::uint32_t to) const {
  KINTSUGI_ASSERT(from < shape_.ranks && to < shape_.ranks);
  return mapping_.bytes().data() + pairs_at(shape_) + (std::size_t{from} * shape_.ranks + to) * pair_bytes(shape_);
}

RingIndex& RingSegment::index(std::uint32_t from, std::uint32_t to) const {
  return *reinterpret_cast<RingIndex*>(pair(from, to));
}

Descriptor& RingSegment::descriptor(std::uint32_t from, std::uint32_t to, std::uint64_t n) const {
  std::byte* first = pair(from, to) + sizeof(RingIndex);
  return *reinterpret_cast<Descriptor*>(first + (n & (shape_.slots - 1)) * sizeof(Descriptor));
}

std::uint64_t& RingSegment::credit(std::uint32_t from, std::uint32_t to, std::uint64_t n) const {
  std::byte* first = pair(from, to) + sizeof(RingIndex) + shape_.slots * sizeof(Descriptor);
  return reinterpret_cast<std::uint64_t*>(first)[n & (shape_.slots - 1)];
}

std::span<std::byte> RingSegment::bounce(std::uint32_t rank) const {
  KINTSUGI_ASSERT(rank < shape_.ranks);
  return mapping_.bytes().subspan(bounce_at(shape_) + rank * shape_.bounce_bytes, shape_.bounce_bytes);
}

// Sequentially consistent on both sides: either the ringer sees the waiter's count, or the waiter, which reads `word`
// after it has counted itself, sees what was written before the ring.
void ring(Doorbell& doorbell, std::uint32_t mask) {
  doorbell.word.fetch_add(1);
  const bool wanted = ((mask & kMessageBit) != 0 && doorbell.awaiting_messages.load() != 0) ||
                      ((mask & kCreditBit) != 0 && doorbell.awaiting_credits.load() != 0);
  if (wanted) futex(doorbell.word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, mask);
}

bool sleep_on(Doorbell& doorbell, std::uint32_t seen, std::uint32_t mask, Instant deadline) {
  timespec until{};
  until.tv_sec = deadline.ns / 1'000'000'000;
  until.tv_nsec = deadline.ns % 1'000'000'000;
  const timespec* when = deadline == kNoDeadline ? nullptr : &until;
  return futex(doorbell.word, FUTEX_WAIT_BITSET, seen, when, mask) == 0 || errno != ETIMEDOUT;
}

}  // namespace kintsugi::transport::shm
