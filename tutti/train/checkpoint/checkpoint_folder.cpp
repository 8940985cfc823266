#include "tutti/train/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "tutti/core/error.h"
#include "tutti/io/safetensors_shards.h"

namespace tutti::train {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> missing_files(const fs::path& step_folder) {
  std::vector<std::string> missing;
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (!fs::exists(safetensors_place(step_folder / name))) missing.emplace_back(name);
  }
  return missing;
}

// All step folders, complete or not, in ascending order of step.
std::vector<fs::path> step_folders(const fs::path& folder) {
  std::vector<fs::path> list;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.is_directory() && step_of(entry.path())) list.push_back(entry.path());
  }
  std::sort(list.begin(), list.end(), [](const fs::path& a, const fs::path& b) { return *step_of(a) < *step_of(b); });
  return list;
}

}  // namespace

std::optional<int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  int64_t step = 0;
  if (!name.starts_with("step-")) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> list = step_folders(folder);
  std::erase_if(list, [](const fs::path& path) { return !missing_files(path).empty(); });
  return list;
}

std::vector<IncompleteCheckpoint> incomplete_checkpoints(const fs::path& folder) {
  std::vector<IncompleteCheckpoint> list;
  for (const fs::path& path : step_folders(folder)) {
    std::vector<std::string> missing = missing_files(path);
    if (!missing.empty()) list.push_back({path, std::move(missing)});
  }
  return list;
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder) {
  const auto list = list_checkpoints(folder);
  return list.empty() ? std::nullopt : std::optional(list.back());
}

std::vector<std::string> remove_unfinished(const fs::path& folder) {
  std::error_code none;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) names.push_back(entry.path().filename().string());
  }
  for (const std::string& name : names) fs::remove_all(folder / name, none);
  std::sort(names.begin(), names.end());
  return names;
}

void remove_step(const fs::path& step_folder) {
  const fs::path hidden =
      step_folder.parent_path() / fmt::format("{}old-{}", kUnfinished, step_folder.filename().string());
  fs::remove_all(hidden);
  fs::rename(step_folder, hidden);
  fs::remove_all(hidden);
}

void prune_checkpoints(const fs::path& folder, int64_t keep_latest) {
  const std::vector<fs::path> whole = list_checkpoints(folder);
  if (keep_latest <= 0 || std::ssize(whole) < keep_latest) return;
  const int64_t oldest = *step_of(whole[whole.size() - static_cast<size_t>(keep_latest)]);
  for (const fs::path& path : step_folders(folder)) {
    if (*step_of(path) >= oldest) break;
    try {
      remove_step(path);
    } catch (const fs::filesystem_error&) {
      // An old checkpoint that cannot be deleted harms nobody.
    }
  }
}

void sync_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  TUTTI_CHECK_ENV(fd >= 0, "cannot open {}: {}", folder.string(), detail::errno_text(errno));
  const int failed = fsync(fd) != 0 ? errno : 0;
  close(fd);
  TUTTI_CHECK_ENV(failed == 0, "cannot sync {}: {}", folder.string(), detail::errno_text(failed));
}

}  // namespace tutti::train
