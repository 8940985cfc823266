#include "tutti/comm/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "tutti/core/error.h"
#include "tutti/runtime/futex.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kMagic = 0x346d687369747475;  // also the version: a change of layout changes it
constexpr size_t kPage = 4096;
constexpr int kNapsForAReason = 1000;  // of a millisecond

constexpr size_t pages(size_t nbytes) { return (nbytes + kPage - 1) / kPage * kPage; }

size_t areas_at() { return pages(sizeof(SegmentHeader)); }
size_t pipes_at(size_t world) { return areas_at() + pages(world * sizeof(RankArea)); }
size_t slots_at(size_t world) { return pipes_at(world) + pages(world * world * sizeof(Pipe)); }
size_t segment_bytes(size_t world, size_t slot_bytes) { return slots_at(world) + world * 2 * slot_bytes; }

std::byte* map_shared(int fd, size_t nbytes) {
  void* base = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TUTTI_CHECK_ENV(base != MAP_FAILED, "cannot map {} bytes of memory shared between ranks: {}", nbytes,
                  detail::errno_text(errno));
  return static_cast<std::byte*>(base);
}

}  // namespace

void SharedRecord::store(const CallRecord& record) {
  static_assert(sizeof(CallRecord) % 8 == 0);
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    words_[i].store(word, std::memory_order_relaxed);
  }
}

CallRecord SharedRecord::load() const {
  uint64_t words[kWords];
  for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
  CallRecord record;
  std::memcpy(static_cast<void*>(&record), words, sizeof record);
  return record;
}

Segment::Segment(int fd, std::byte* base, size_t nbytes) : fd_(fd), base_(base), nbytes_(nbytes) {
  const size_t world = header().world_size;
  areas_ = reinterpret_cast<RankArea*>(base + areas_at());
  pipes_ = reinterpret_cast<Pipe*>(base + pipes_at(world));
  slots_ = base + slots_at(world);
}

std::shared_ptr<Segment> Segment::create(int world_size, int64_t slot_bytes) {
  TUTTI_CHECK(world_size >= 1 && world_size <= kMaxShmRanks, "{} local ranks; expected 1 to {}", world_size,
              kMaxShmRanks);
  TUTTI_CHECK(slot_bytes > 0 && slot_bytes % 4096 == 0, "slots of {} bytes; expected a positive multiple of 4096",
              slot_bytes);
  const int fd = memfd_create("tutti-group", MFD_CLOEXEC);
  TUTTI_CHECK_ENV(fd >= 0, "cannot create memory shared between ranks: {}", detail::errno_text(errno));
  const size_t nbytes = segment_bytes(static_cast<size_t>(world_size), static_cast<size_t>(slot_bytes));
  const HeldSignal held(SIGXFSZ);
  std::byte* base = nullptr;
  try {
    TUTTI_CHECK_ENV(ftruncate(fd, static_cast<off_t>(nbytes)) == 0,
                    "cannot reserve {} bytes of memory shared between ranks: {}", nbytes, detail::errno_text(errno));
    base = map_shared(fd, nbytes);
  } catch (...) {
    ::close(fd);
    throw;
  }
  // The file is zeros, which is what every area, pipe and slot starts as.
  SegmentHeader* header = new (base) SegmentHeader{};
  header->world_size = static_cast<uint32_t>(world_size);
  header->slot_bytes = slot_bytes;
  header->magic = kMagic;
  return std::shared_ptr<Segment>(new Segment(fd, base, nbytes));
}

std::shared_ptr<Segment> Segment::open(int fd) {
  struct stat status{};
  TUTTI_CHECK_ENV(fstat(fd, &status) == 0 && status.st_size >= static_cast<off_t>(areas_at()),
                  "descriptor {} is not memory shared between ranks", fd);
  const size_t nbytes = static_cast<size_t>(status.st_size);
  std::byte* base = map_shared(fd, nbytes);
  const SegmentHeader& header = *reinterpret_cast<SegmentHeader*>(base);
  const bool good = header.magic == kMagic && header.world_size >= 1 && header.world_size <= kMaxShmRanks &&
                    header.slot_bytes > 0 &&
                    segment_bytes(header.world_size, static_cast<size_t>(header.slot_bytes)) == nbytes;
  if (!good) {
    munmap(base, nbytes);
    detail::throw_environment(
        fmt::format("descriptor {} holds no group of this version of Tutti; all ranks must run the same version", fd));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);  // a rank's own children are not ranks
  return std::shared_ptr<Segment>(new Segment(fd, base, nbytes));
}

Segment::~Segment() {
  munmap(base_, nbytes_);
  close_fd();
}

void Segment::close_fd() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Segment::fail(std::string_view reason) {
  SegmentHeader& h = header();
  uint32_t none = 0;
  if (h.failure.compare_exchange_strong(none, 1)) {
    const size_t length = std::min(reason.size(), sizeof h.failure_text - 1);
    std::memcpy(h.failure_text, reason.data(), length);
    h.failure_text[length] = 0;
    h.failure.store(2);
  }
  for (int r = 0; r < world_size(); ++r) {
    area(r).doorbell.fetch_add(1);
    futex_wake_all(area(r).doorbell);
  }
}

std::string Segment::failure() const {
  const std::atomic<uint32_t>& state = header().failure;
  // 1: the reason is being written, perhaps by a thread that has lost its turn. A rank that died between the two stores
  // leaves 1 for ever; the reason is lost then, the failure is not.
  for (int naps = 0; state.load(std::memory_order_acquire) == 1 && naps < kNapsForAReason; ++naps)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  switch (state.load(std::memory_order_acquire)) {
    case 0:
      return "";
    case 1:
      return "the group has failed";
    default:
      return header().failure_text;
  }
}

}  // namespace tutti::comm
