#include "tutti/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/core/error.h"

namespace tutti {
namespace {

[[noreturn]] void fail(std::string_view action, const std::string& path, int error) {
  throw EnvironmentError(fmt::format("cannot {} '{}': {} (errno {})", action, path, detail::errno_text(error), error));
}

struct Descriptor {
  int value;
  ~Descriptor() { close(value); }
};

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // The system would open the file that the name is up to there.
  TUTTI_CHECK(path_.find('\0') == std::string::npos,
              "cannot open '{}': byte {} of its name is zero, where the system ends a name", path_.c_str(),
              path_.find('\0'));
  const int opened = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not hang
  if (opened < 0) fail("open", path_, errno);
  const Descriptor descriptor{opened};
  map(descriptor.value);
}

MappedFile::MappedFile(int descriptor, std::string path) : path_(std::move(path)) { map(descriptor); }

void MappedFile::map(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) fail("examine", path_, errno);
  TUTTI_CHECK(!S_ISDIR(status.st_mode), "cannot map '{}': it is a folder; name the file in it", path_);
  TUTTI_CHECK(S_ISREG(status.st_mode), "cannot map '{}': it is not a regular file", path_);
  nbytes_ = static_cast<size_t>(status.st_size);
  if (nbytes_ == 0) return;  // mmap refuses a length of zero
  void* mapping = mmap(nullptr, nbytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) fail("map", path_, errno);
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), nbytes_);
}

void forget_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes.size()) / page * page;
  // An error is none: the pages then merely stay.
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace tutti
