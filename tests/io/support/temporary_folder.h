// A fresh folder for one test, removed with everything in it when the test ends.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tutti::testing {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  // Writes `contents` as the file `name` (folders in it are created) and returns its path.
  std::string write(std::string_view name, std::string_view contents) const;
  // Number of entries directly inside, hidden ones included.
  int64_t entry_count() const;

 private:
  std::filesystem::path path_;
};

// The whole file as a string.
std::string read_whole_file(const std::string& path);

}  // namespace tutti::testing
