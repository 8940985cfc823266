// Checkpoints that are written while training continues: the tensors are copied, and a thread of each rank writes the copy.
#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <thread>

#include "tutti/comm/process_group.h"
#include "tutti/train/checkpoint.h"

namespace tutti::train {

// Used by one thread of a rank; all ranks make the same calls. The copy takes as much memory as what a rank stores, and keeps it.
class BackgroundSaver {
 public:
  // Collective: the writers of the ranks meet in a group of their own. Null: one rank.
  explicit BackgroundSaver(comm::ProcessGroup* group);
  // Waits for a save that is under way; its error is lost then, so call wait() first.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // Copies everything that save_checkpoint() would write, and begins to write it. UsageError while a save is under way.
  void save(const std::filesystem::path& folder, const nn::Module& model, const optim::Optimizer& optimizer, const TrainState& state, int64_t keep_latest);
  // Returns when what was begun is on the disk, with its step folder, or an empty path when nothing was begun. Throws the errors of save_checkpoint().
  std::filesystem::path wait();

 private:
  std::shared_ptr<comm::ProcessGroup> group_;
  NamedTensors model_, optimizer_;  // the copies
  std::thread writer_;
  std::filesystem::path folder_;  // that is being written
  std::exception_ptr problem_;
};

}  // namespace tutti::train
