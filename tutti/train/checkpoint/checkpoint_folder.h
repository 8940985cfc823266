// The folder of a run's checkpoints: which of its step-<N> folders are complete, and what killed processes left behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tutti::train {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
// The prefix of the name of a folder that is being written or deleted.
constexpr const char* kUnfinished = ".tmp-";

// Complete checkpoints in ascending order of step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);
// A folder named step-<N> that lacks files, for example after an interrupted copy. Tutti itself never leaves such a
// folder.
struct IncompleteCheckpoint {
  std::filesystem::path path;
  std::vector<std::string> missing;
};
std::vector<IncompleteCheckpoint> incomplete_checkpoints(const std::filesystem::path& folder);
// Deletes folders that killed processes left behind, and returns their names.
std::vector<std::string> remove_unfinished(const std::filesystem::path& folder);
// The step of a folder named step-<N>; nullopt for any other name.
std::optional<int64_t> step_of(const std::filesystem::path& path);
// Deletes all but the `keep_latest` newest checkpoints, incomplete ones before them included, whoever left them; 0 and
// -1 keep all.
void prune_checkpoints(const std::filesystem::path& folder, int64_t keep_latest);
// Deletes a checkpoint. A kill in between leaves no part of it under its name.
void remove_step(const std::filesystem::path& step_folder);

// Returns when what was renamed into the folder, or away from it, is on the disk. EnvironmentError when that fails.
void sync_folder(const std::filesystem::path& folder);

}  // namespace tutti::train
