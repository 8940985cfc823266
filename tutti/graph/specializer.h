// Specializer: makes a specialization from a run of the function, or from a program recorded in an earlier run.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "tutti/graph/joint.h"

namespace tutti::graph {

// The results and effects of a traced function, in tensors of the trace.
struct Outcome {
  std::vector<ResultSource> results;
  std::vector<GradWrite> grad_writes;
  std::vector<Rebinding> rebindings;
  std::vector<Tensor> held_results, held_grad_leaves,
      held_rebound;              // per entry of the lists above: the held tensor it speaks of
  std::vector<Tensor> of_graph;  // what the forward returns, insides in the place of wrappers
  std::vector<Tensor> held_wrappers;
  std::optional<NumericsMode> mode;  // of a function that has to do with wrappers
  std::shared_ptr<const void> structure;
  std::vector<KeySlot> keys;
  bool has_backward = false;
  JointTrace backward;
};

class Specializer {
 public:
  Specializer(const BuildOptions& options, const Leaves& arguments, Reach reach, Program* program = nullptr);
  // The function may read elements; what it read before now is in `progress`.
  void allow_reads(const Progress& progress) { trace_.answer_reads(progress.read); }

  // Runs the function.
  void trace(TraceFn fn, const Symbols::Sizes& sizes);
  const HeldReads& reads() const { return reads_; }
  void watched_by(std::shared_ptr<HeldWatch> watch) { made_->watch = std::move(watch); }
  // Traces the calls of a program again. False when they would not be the same.
  bool replay(const Program& program, const Outcome& recorded, const SymValues& values);
  // Passes, plans and kernels. Once, on any thread.
  std::shared_ptr<const Specialization> build();
  std::span<const Captured> captured() const { return trace_.captured(); }
  // The outcome for later replays: its tensors know nothing of autograd.
  Outcome recorded();

 private:
  BuildOptions named(const char* part) const;
  void add_result(const Tensor& t);
  int32_t copied_argument(const Tensor& result) const;
  void refuse_copies_of(std::span<const Tensor> results) const;
  int32_t add_to_graph(const Tensor& t);
  void add_grad_writes();
  void note_grads();
  void note_reads();
  void add_rebindings();

  const BuildOptions options_;
  const std::vector<Tensor> arguments_;
  const std::vector<RandomKey> argument_keys_;
  const Reach reach_;
  Trace trace_;
  std::shared_ptr<Specialization> made_;
  std::vector<Tensor> stand_ins_;
  Outcome outcome_;
  HeldReads reads_;
  JointSplit split_;
};

// fn(reach), with the least that is enough.
template <class Fn>
auto with_reach(Fn fn) {
  try {
    return fn(Reach::arguments);
  } catch (const HeldReachesFurther&) {
    return fn(Reach::storages);
  }
}

inline double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace tutti::graph
