// The run folder runs/<name>/: contains all results of a run, and is locked so that only one run at a time writes
// there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tutti::train {

// Holds the lock while it exists; the lock is also released when the process ends for any reason. Owned by rank 0.
class RunFolder {
 public:
  struct Options {
    // First move the folder of an old run to <name>.old-N.
    bool fresh = false;
  };
  // Creates <dir>/<name> if necessary, and deletes temporary files (atomic_file.h) that a killed run left there.
  // UsageError for a name that is not a plain folder name, EnvironmentError when the folder cannot be created or
  // another run, whose pid is named, is using it.
  RunFolder(const std::filesystem::path& dir, const std::string& name, Options options);
  RunFolder(const std::filesystem::path& dir, const std::string& name) : RunFolder(dir, name, Options{}) {}
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Where the old run was moved, if there was one and `fresh` was set.
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

  std::filesystem::path config() const { return path_ / "config.resolved.toml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path report() const { return path_ / "report.html"; }
  std::filesystem::path report_facts() const { return path_ / "report.json"; }
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
