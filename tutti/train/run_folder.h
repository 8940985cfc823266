// runs/<name>/: everything a run leaves behind, and the guarantee that one run at a time writes there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tutti::train {

// The lock lasts as long as the object, and ends with the process whatever happens to it. Rank 0 owns it.
class RunFolder {
 public:
  struct Options {
    // Move what an old run left to <name>.old-N first.
    bool fresh = false;
  };
  // Makes <dir>/<name> if need be, and deletes temporary files (atomic_file.h) that a killed run left there. UsageError for a name that is no plain folder name, EnvironmentError when the folder
  // cannot be made or another run (its pid is named) is using it.
  RunFolder(const std::filesystem::path& dir, const std::string& name, Options options);
  RunFolder(const std::filesystem::path& dir, const std::string& name) : RunFolder(dir, name, Options{}) {}
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Where the old run went, when there was one and `fresh` was asked for.
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

  std::filesystem::path config() const { return path_ / "config.resolved.toml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path report() const { return path_ / "report.html"; }
  std::filesystem::path sample() const { return path_ / "sample.txt"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoint"; }
  std::filesystem::path traces() const { return path_ / "trace"; }

 private:
  void make_and_lock();
  void move_aside();
  void unlock();
  std::filesystem::path path_;
  std::optional<std::filesystem::path> moved_to_;
  int lock_fd_ = -1;
};

}  // namespace tutti::train
