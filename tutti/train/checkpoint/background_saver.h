// Checkpoints that are written while training continues: a thread of each rank copies the state, and writes the copy.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>

#include "tutti/comm/process_group.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/checkpoint/state_lease.h"

namespace tutti::train {

// Used by one thread of a rank; all ranks make the same calls. The copy takes as much memory as what a rank stores,
// from the beginning to the end.
class BackgroundSaver {
 public:
  // For this model and optimizer, whose parameters have memory. Collective: the writers of the ranks meet in a group of
  // their own. Null: one rank. `tables`: those of the model that ranks divide, if any, which must outlive this.
  // `copy_delay`: of the thread before each block that it copies, for tests.
  BackgroundSaver(comm::ProcessGroup* group, const nn::Module& model, const optim::Optimizer& optimizer,
                  const parallel::ShardedTables* tables = nullptr, std::chrono::microseconds copy_delay = {});
  // Waits for a save that is under way; its error is lost then, so call wait() first.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // Begins to write everything that save_checkpoint() would write. Until before_change() nothing of the model and the
  // optimizer may change. UsageError while a save is under way.
  void save(const std::filesystem::path& folder, const nn::Module& model, const optim::Optimizer& optimizer,
            const TrainState& state, int64_t keep_latest);
  // Call before the values of model or optimizer change: copies what the thread has not reached. Local.
  void before_change();
  // Returns when what was begun is on the disk, with its step folder, or an empty path when nothing was begun. Throws
  // the errors of save_checkpoint().
  std::filesystem::path wait();

 private:
  // The tensors of a file, and the boxes that this rank has, as one list.
  static NamedTensors flat(const FileTensors& file);
  // The file with the copies of flat().
  static FileTensors with_copies(FileTensors file, const NamedTensors& copies);

  std::shared_ptr<comm::ProcessGroup> group_;
  const parallel::ShardedTables* const tables_;
  StateLease model_, optimizer_;
  const std::chrono::microseconds copy_delay_;
  std::thread writer_;
  std::filesystem::path folder_;  // that is being written
  std::exception_ptr problem_;
};

}  // namespace tutti::train
