// A folder for runs that a command starts itself: the user's, or one that goes with the object.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::cli {

class RunsFolder {
 public:
  // `keep` is made if need be, must be empty and stays; with "" it is a new temporary folder whose name begins with
  // `prefix`. UsageError, or EnvironmentError when it cannot be made.
  RunsFolder(const std::string& keep, const std::string& prefix);
  ~RunsFolder();
  // Removes a temporary folder early; any thread.
  void remove() const;
  RunsFolder(const RunsFolder&) = delete;
  RunsFolder& operator=(const RunsFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const bool is_kept_;
};

}  // namespace tutti::cli
