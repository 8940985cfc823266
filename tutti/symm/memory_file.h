// Memory files: pages that processes of a host share through a descriptor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/runtime/unique_fd.h"
#include "tutti/symm/backend.h"

namespace tutti::comm::symm {

inline constexpr int64_t kPageBytes = 4096;
constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// A mapped memory file. It has no name, so nothing is left when the last process is gone, however it went.
class FileBlock : public Block {
 public:
  // Zeroed, close-on-exec, its size sealed, all pages allocated: EnvironmentError when there is too little memory, and
  // never a signal later. `nbytes` is rounded up to whole pages.
  static std::shared_ptr<FileBlock> create(int64_t nbytes);
  // Maps what another process created. EnvironmentError when `fd` is no such file or has other than `nbytes` bytes.
  static std::shared_ptr<FileBlock> map(UniqueFd fd, int64_t nbytes);
  ~FileBlock() override;

  int fd() const { return fd_.get(); }
  // Mapped blocks of peers need no descriptor once they are mapped.
  void close_fd() { fd_ = UniqueFd(); }

 private:
  explicit FileBlock(UniqueFd fd) : fd_(std::move(fd)) {}
  void map_pages();
  UniqueFd fd_;
};

// Addresses without memory, to put mappings side by side.
class AddressRange {
 public:
  // EnvironmentError when the process has no such range.
  explicit AddressRange(int64_t nbytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  std::byte* base() const { return base_; }
  // Makes [offset, offset + nbytes) show the shared pages at `source` too; all are whole pages.
  void show(int64_t offset, std::byte* source, int64_t nbytes);

 private:
  std::byte* base_;
  int64_t nbytes_;
};

// How many bytes this process can still get: the least of the machine's free memory and the limits of its control
// groups.
int64_t available_memory();

}  // namespace tutti::comm::symm
