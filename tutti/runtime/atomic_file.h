// Writing a file so that a reader sees the old contents or the new ones, never a part.
//
// The bytes go to a temporary name in the same folder; commit() does fsync, rename over the target, fsync of the folder.
// A crash, a full disk or a kill before the rename leaves the old file as it was; a temporary that a killed process left
// is named ".<name>.tmp-<pid>-<n>" and may be deleted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

// What a file that has been put in place outlives. Waiting for the disk takes tens of milliseconds, more when it is busy.
enum class Outlives { power_cut, process };

// Owned by one thread at a time. Every failure is an EnvironmentError naming the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  // Without commit() the temporary is removed and the target is untouched.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t nbytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Waits until the bytes are on the disk, unless the file need not outlive a power cut, then puts it in place. Nothing may
  // be written afterwards.
  void commit(Outlives what = Outlives::power_cut);

 private:
  void discard() noexcept;
  [[noreturn]] void fail(std::string_view action, int error);

  std::string path_;
  std::string folder_;
  std::string temporary_;
  int descriptor_ = -1;
};

// The whole of `contents` as the file `path`, atomically.
void write_file_atomically(const std::string& path, std::string_view contents, Outlives what = Outlives::power_cut);

}  // namespace tutti
