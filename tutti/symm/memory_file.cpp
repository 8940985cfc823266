#include "tutti/symm/memory_file.h"
#include "tutti/runtime/held_signal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>

namespace tutti::comm::symm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A number in a file of one number; `missing` when there is none ("max").
int64_t number_in(const std::string& path, int64_t missing) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : missing;
}

int64_t free_memory_of_machine() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kib = 0;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// Every level of the hierarchy counts. A limit may be reached by cached files, which the kernel gives up.
int64_t free_memory_of_control_groups() {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  int64_t least = kNone;
  while (std::getline(file, line)) {
    if (!line.starts_with("0::")) continue;
    for (std::string path = line.substr(3);; path.resize(path.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + path;
      const int64_t limit = number_in(folder + "/memory.max", kNone);
      if (limit != kNone) {
        int64_t cached = 0, value = 0;
        std::ifstream statistics(folder + "/memory.stat");
        for (std::string name; statistics >> name >> value;) {
          if (name == "inactive_file" || name == "active_file") cached += value;
        }
        least = std::min(least, limit - number_in(folder + "/memory.current", 0) + cached);
      }
      if (path.empty() || path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace

int64_t available_memory() { return std::min(free_memory_of_machine(), free_memory_of_control_groups()); }

std::shared_ptr<FileBlock> FileBlock::create(int64_t nbytes) {
  TUTTI_ASSERT(nbytes > 0 && nbytes < (int64_t{1} << 62), "a memory file of {} bytes", nbytes);
  nbytes = round_up(nbytes, kPageBytes);
  const int64_t available = available_memory();
  TUTTI_CHECK_ENV(nbytes <= available, "symmetric memory: {} bytes are wanted and {} are available", nbytes, available);
  std::shared_ptr<FileBlock> block(
      new FileBlock(UniqueFd(memfd_create("tutti-symm", MFD_CLOEXEC | MFD_ALLOW_SEALING))));
  TUTTI_CHECK_ENV(block->fd_, "symmetric memory: cannot make a memory file: {}", detail::errno_text(errno));
  const HeldSignal held(SIGXFSZ);
  int error = 0;
  do {
    error = posix_fallocate(block->fd(), 0, nbytes);
  } while (error == EINTR);
  TUTTI_CHECK_ENV(error == 0, "symmetric memory: cannot get {} bytes: {}", nbytes, detail::errno_text(error));
  TUTTI_CHECK_ENV(fcntl(block->fd(), F_ADD_SEALS, kSeals) == 0, "symmetric memory: cannot seal a memory file: {}",
                  detail::errno_text(errno));
  block->nbytes = nbytes;
  block->map_pages();
  return block;
}

std::shared_ptr<FileBlock> FileBlock::map(UniqueFd fd, int64_t nbytes) {
  struct stat status{};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  TUTTI_CHECK_ENV(
      fstat(fd.get(), &status) == 0 && status.st_size == nbytes && seals >= 0 && (seals & F_SEAL_SHRINK) != 0,
      "symmetric memory: a peer's descriptor is no sealed memory file of {} bytes (it has {})", nbytes, status.st_size);
  std::shared_ptr<FileBlock> block(new FileBlock(std::move(fd)));
  block->nbytes = nbytes;
  block->map_pages();
  return block;
}

void FileBlock::map_pages() {
  void* address = mmap(nullptr, static_cast<size_t>(nbytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  TUTTI_CHECK_ENV(address != MAP_FAILED, "symmetric memory: cannot map {} bytes: {}", nbytes,
                  detail::errno_text(errno));
  base = static_cast<std::byte*>(address);
}

FileBlock::~FileBlock() {
  if (base != nullptr) munmap(base, static_cast<size_t>(nbytes));
}

AddressRange::AddressRange(int64_t nbytes) : nbytes_(nbytes) {
  void* address =
      mmap(nullptr, static_cast<size_t>(nbytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TUTTI_CHECK_ENV(address != MAP_FAILED, "symmetric memory: no range of {} addresses: {}", nbytes,
                  detail::errno_text(errno));
  base_ = static_cast<std::byte*>(address);
}

AddressRange::~AddressRange() { munmap(base_, static_cast<size_t>(nbytes_)); }

void AddressRange::show(int64_t offset, std::byte* source, int64_t nbytes) {
  TUTTI_ASSERT(offset % kPageBytes == 0 && nbytes % kPageBytes == 0 && offset + nbytes <= nbytes_, "pages at {}",
               offset);
  // An old size of zero makes a second mapping of shared pages and leaves the first in place: no descriptor is needed.
  void* address = mremap(source, 0, static_cast<size_t>(nbytes), MREMAP_MAYMOVE | MREMAP_FIXED, base_ + offset);
  TUTTI_CHECK_ENV(address == base_ + offset, "symmetric memory: cannot map {} bytes a second time: {}", nbytes,
                  detail::errno_text(errno));
}

}  // namespace tutti::comm::symm
