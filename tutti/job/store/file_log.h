// A file that processes append records to, under a lock, and read from its beginning.
//
// A record is the 64-bit hash of a frame (wire.h) and the frame. Whoever writes first cuts off what a writer that died
// in the middle of a record left behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tutti/job/store/store_rules.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// Used by one thread at a time.
class FileLog {
 public:
  // Opens the file or makes it, readable for its user only. EnvironmentError when that is not possible.
  explicit FileLog(std::string path);

  // Holds the file against other processes while it exists.
  class Lock {
   public:
    // StoreTimeout when another process holds the file until the deadline.
    Lock(const FileLog& log, const StoreDeadline& deadline);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int fd_;
  };

  // False when the path leads to another file by now, or to none. Needs the lock.
  bool is_current() const;
  // True when there may be records that were not read.
  bool has_more() const;
  // Passes on the records that were not read yet. Needs the lock. EnvironmentError when the file is damaged, was cut,
  // or was deleted.
  void read_new(const std::function<void(uint8_t code, std::string_view body)>& apply);
  // Needs the lock, and that everything was read. The record counts as read. EnvironmentError when the file system does
  // not take it; the file is then as before.
  void append(std::string_view frame);
  // Reads from the beginning again.
  void rewind() { offset_ = 0; }
  void remove();
  const std::string& path() const { return path_; }

 private:
  int64_t size() const;
  std::string read_at(int64_t offset, size_t count) const;

  std::string path_;
  UniqueFd fd_;
  int64_t offset_ = 0;  // end of the last whole record read
};

}  // namespace tutti::comm
