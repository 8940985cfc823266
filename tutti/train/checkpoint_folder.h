// The folder of a run's checkpoints: which of its step-<N> are whole, and what killed writers left.
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
// How the name of a folder begins that is being written or deleted.
constexpr const char* kUnfinished = ".tmp-";

// Complete checkpoints in ascending order of step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);
// A folder named step-<N> that lacks files, as after a copy that broke off. Nothing here writes such a folder.
struct IncompleteCheckpoint {
  std::filesystem::path path;
  std::vector<std::string> missing;
};
std::vector<IncompleteCheckpoint> incomplete_checkpoints(const std::filesystem::path& folder);
// Deletes what killed writers left behind; the names of these folders.
std::vector<std::string> remove_unfinished(const std::filesystem::path& folder);
// The step of a folder named step-<N>; nothing for any other name.
std::optional<int64_t> step_of(const std::filesystem::path& path);
// Deletes a checkpoint so that a kill in between leaves no part of it under its name.
void remove_step(const std::filesystem::path& step_folder);

}  // namespace tutti::train
