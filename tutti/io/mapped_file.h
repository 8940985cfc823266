// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Immutable after construction, so any thread may read. The mapping lives as long as the object; hold it in a
// shared_ptr where views outlive a scope. The file must not be truncated while it is mapped: replace it instead
// (AtomicFile).
class MappedFile {
 public:
  // EnvironmentError, naming path and reason, when the file is missing or unreadable; UsageError when it is not a
  // regular file, and for a name with a zero byte.
  explicit MappedFile(std::string path);
  // Maps an open file; the descriptor may be closed afterwards. `path` names the file in errors.
  MappedFile(int descriptor, std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  size_t nbytes() const { return nbytes_; }
  std::span<const std::byte> bytes() const { return {data_, nbytes_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), nbytes_}; }

 private:
  void map(int descriptor);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t nbytes_ = 0;
};

// For bytes of a mapped file that are not read again soon: the pages that lie wholly in them no longer count as memory
// of the process. They are read from the file again when they are needed.
void forget_pages(std::span<const std::byte> bytes);

}  // namespace tutti
