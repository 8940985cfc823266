#include "tutti/comm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kMagic = 0x316d687369747475;  // also the version: a change of layout changes it
constexpr size_t kPage = 4096;
constexpr size_t kHeaderBytes = (sizeof(ShmHeader) + kPage - 1) / kPage * kPage;

size_t segment_bytes(int world_size, int64_t chunk_bytes) {
  return kHeaderBytes + static_cast<size_t>(world_size + 1) * static_cast<size_t>(chunk_bytes);
}

void* map_shared(int fd, size_t nbytes) {
  void* base = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TUTTI_CHECK_ENV(base != MAP_FAILED, "cannot map {} bytes of memory shared between ranks: {}", nbytes,
                  detail::errno_text(errno));
  return base;
}

}  // namespace

std::shared_ptr<ShmSegment> ShmSegment::create(int world_size, int64_t chunk_bytes) {
  TUTTI_CHECK(world_size >= 1 && world_size <= kMaxRanks, "{} local ranks; expected 1 to {}", world_size, kMaxRanks);
  TUTTI_CHECK(chunk_bytes > 0 && chunk_bytes % 64 == 0, "chunk of {} bytes; expected a positive multiple of 64",
              chunk_bytes);
  const int fd = memfd_create("tutti-ranks", MFD_CLOEXEC);
  TUTTI_CHECK_ENV(fd >= 0, "cannot create memory shared between ranks: {}", detail::errno_text(errno));
  const size_t nbytes = segment_bytes(world_size, chunk_bytes);
  void* base = nullptr;
  try {
    TUTTI_CHECK_ENV(ftruncate(fd, static_cast<off_t>(nbytes)) == 0,
                    "cannot reserve {} bytes of memory shared between ranks: {}", nbytes, detail::errno_text(errno));
    base = map_shared(fd, nbytes);
  } catch (...) {
    close(fd);
    throw;
  }
  ShmHeader* header = new (base) ShmHeader{};
  header->world_size = static_cast<uint32_t>(world_size);
  header->chunk_bytes = chunk_bytes;
  header->magic = kMagic;
  return std::shared_ptr<ShmSegment>(new ShmSegment(fd, base, nbytes));
}

std::shared_ptr<ShmSegment> ShmSegment::open(int fd) {
  struct stat status {};
  TUTTI_CHECK_ENV(fstat(fd, &status) == 0 && status.st_size >= static_cast<off_t>(kHeaderBytes),
                  "descriptor {} is not memory shared between ranks; start ranks with the launcher", fd);
  const size_t nbytes = static_cast<size_t>(status.st_size);
  void* base = map_shared(fd, nbytes);
  const ShmHeader& header = *static_cast<ShmHeader*>(base);
  const bool good = header.magic == kMagic && header.world_size >= 1 && header.world_size <= kMaxRanks &&
                    header.chunk_bytes > 0 &&
                    segment_bytes(static_cast<int>(header.world_size), header.chunk_bytes) == nbytes;
  if (!good) {
    munmap(base, nbytes);
    detail::throw_environment(fmt::format(
        "descriptor {} holds no ranks of this version of Tutti; launcher and ranks must be the same program", fd));
  }
  // A rank's own children are not ranks.
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::shared_ptr<ShmSegment>(new ShmSegment(fd, base, nbytes));
}

ShmSegment::~ShmSegment() {
  munmap(base_, nbytes_);
  close(fd_);
}

std::byte* ShmSegment::slot(int rank) const {
  return static_cast<std::byte*>(base_) + kHeaderBytes + static_cast<size_t>(rank) * header().chunk_bytes;
}

void ShmSegment::announce(int rank, pid_t pid) {
  header().ranks[rank].pid.store(pid, std::memory_order_release);
}

}  // namespace tutti::comm
