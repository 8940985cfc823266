// Atomic replacement of a file: a reader sees either the old contents or the new ones, never a part.
//
// The bytes are written to a temporary file in the same folder; commit() calls fsync, renames it over the target, and
// calls fsync on the folder. A crash, a full disk or a kill before the rename leaves the old file unchanged; a
// temporary file left by a killed process is named ".<name>.tmp-<pid>-<n>" and may be deleted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

// The failures that a committed file must survive. Waiting for the disk (power_cut) takes tens of milliseconds, or more
// when it is busy.
enum class Outlives { power_cut, process };

// Used by one thread at a time. Every failure is an EnvironmentError naming the path and the system's reason.
class AtomicFile {
 public:
  // The file gets these permissions, without those that the umask takes; 0600 keeps it from other users.
  explicit AtomicFile(std::string path, unsigned permissions = 0666);
  // Without commit(), removes the temporary file and leaves the target unchanged.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t nbytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Waits until the bytes are on the disk, unless `what` is Outlives::process, then replaces the target. Nothing may be
  // written afterwards.
  void commit(Outlives what = Outlives::power_cut);

 private:
  void discard() noexcept;
  [[noreturn]] void fail(std::string_view action, int error);

  std::string path_;
  std::string folder_;
  std::string temporary_;
  int descriptor_ = -1;
};

// Writes `contents` to the file `path` atomically.
void write_file_atomically(const std::string& path, std::string_view contents, Outlives what = Outlives::power_cut,
                           unsigned permissions = 0666);

}  // namespace tutti
