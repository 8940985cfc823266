// SurvivingState: the memory of a run that outlives its ranks (docs/surviving.md): masters, optimizer state, reduced
// gradients and the record of a step, in the job's memory file, which all ranks of the host map.
//
// The elements of each parameter are stepped in blocks of 256 KiB of the master. A block remembers the last step that
// was applied to it; what it held before is in an undo record of the rank that writes it. So whoever finds a committed
// step half applied can finish it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tutti/job/host/job_file.h"
#include "tutti/job/host/step_vote.h"
#include "tutti/job/host/undo_record.h"
#include "tutti/nn/module.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/train/survival/step_facts.h"

namespace tutti::train {

class SurvivingState {
 public:
  // The state of these parameters, each with `states` tensors of the optimizer, and `extra_bytes` of what else a step
  // changes. All ranks of the job give the same. EnvironmentError when the host has too little memory, UsageError when
  // ranks of an earlier team had other parameters.
  SurvivingState(std::shared_ptr<comm::JobFile> job, const std::vector<nn::NamedParameter>& parameters, size_t states,
                 int64_t extra_bytes = 0);

  // The whole of a parameter's master, of one of its states, and of its reduced gradient, which a rank writes before it
  // has prepared a step.
  Tensor master(size_t parameter) const;
  Tensor state(size_t parameter, size_t which) const;
  Tensor gradient(size_t parameter) const;
  // The number of a parameter among those given; -1: it is none of them.
  int64_t index_of(const nn::Parameter& parameter) const;
  size_t states() const { return states_; }
  // The bytes of one array of all parameters, of which there are the masters, the states and the gradients; and of all
  // memory.
  int64_t array_bytes() const { return array_bytes_; }
  int64_t nbytes() const { return nbytes_; }

  struct Block {
    size_t parameter;
    int64_t begin, end;  // of its elements
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  // The blocks that rank `rank` of `ranks` steps.
  struct Range {
    size_t begin, end;
  };
  Range blocks_of(int rank, int ranks) const {
    return {blocks_.size() * static_cast<size_t>(rank) / static_cast<size_t>(ranks),
            blocks_.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(ranks)};
  }
  bool is_applied(size_t block, int64_t step) const;
  void set_applied(int64_t step);  // all blocks; nobody steps meanwhile

  // The elements [begin, end) of a parameter as 1-d tensors.
  struct Piece {
    size_t parameter;
    Tensor master, gradient;
    std::vector<Tensor> state;
  };
  using Update = std::function<void(const Piece&)>;
  // Applies a committed step to a block, unless that was done. The undo record of `slot`, the rank's number in its
  // team, keeps what it held before.
  void apply(size_t block, int64_t step, int slot, const Update& update);
  // Restores the block that the record of a slot holds, if it was being stepped. Afterwards it is as before the step,
  // as often as this is called.
  void restore(int slot, int64_t step);

  comm::StepVote vote() const { return comm::StepVote(header_->vote); }
  // The record of a step; of two steps that follow each other there is room.
  StepFacts& facts(int64_t step) const { return header_->facts[step % 2]; }
  // The rest of the state after a step; as for the record, there is room for two steps.
  std::span<std::byte> extra(int64_t step) const {
    return {extra_at_ + step % 2 * extra_bytes_, static_cast<size_t>(extra_bytes_)};
  }
  // The last step after which all was done that follows a step: it is logged, validated, and saved.
  std::atomic<int64_t>& finished() const { return header_->finished; }
  std::atomic<int64_t>& begun_save() const {
    return header_->begun_save;
  }  // the last step of which a checkpoint was begun
  std::atomic<int64_t>& told_deaths() const {
    return header_->told_deaths;
  }  // how many of the job's deaths are in the log
  std::atomic<int64_t>& step_began_ns() const { return header_->step_began_ns; }
  std::atomic<int64_t>& is_over() const { return header_->is_over; }  // all steps and what follows them are done

 private:
  struct Header {
    std::atomic<uint64_t> layout;
    std::atomic<int64_t> finished, begun_save, told_deaths, step_began_ns, is_over;
    StepFacts facts[2];
    comm::StepVote::Area vote;
  };
  struct Place {
    const void* identity;
    Extents sizes;
    int64_t offset;  // in bytes, in each of the arrays
  };
  Tensor tensor_at(int64_t array, size_t parameter) const;
  Piece piece_of(size_t parameter, int64_t begin, int64_t end) const;
  std::vector<std::span<std::byte>> bytes_of(const Block& block) const;
  comm::UndoRecord undo(int slot) const;

  const std::shared_ptr<comm::JobFile> job_;
  const size_t states_;
  std::vector<Place> places_;
  std::vector<Block> blocks_;
  const int64_t extra_bytes_;  // a multiple of 8
  int64_t nbytes_ = 0, array_bytes_ = 0, undo_bytes_ = 0;
  std::byte *base_ = nullptr, *extra_at_ = nullptr, *undo_at_ = nullptr, *arrays_at_ = nullptr;
  Header* header_ = nullptr;
  std::atomic<int64_t>* applied_ = nullptr;
};

}  // namespace tutti::train
