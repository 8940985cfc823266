// An executable: the steps of a compiled graph with everything that does not change from call to call.
//
// It is immutable once constructed and may be called by any number of threads concurrently: the memory a call writes is
// in a frame of its own. Frames and their arenas are kept for later calls; large buffers are allocated for as long as
// they live.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tutti/plan/build_options.h"
#include "tutti/plan/step.h"

namespace tutti {
class MemoryLender;  // lent_memory.h
}

namespace tutti::graph {

// Memory that exists before a call: where a given buffer begins.
struct GivenMemory {
  StorageRef storage;
  int64_t first_byte = 0;
  MemoryLender* lender = nullptr;  // of this memory, which may not be there before it is asked for
};

class Executable {
 public:
  // Compiles the graph: runs the passes (passes/pipeline.h), plans memory and compiles kernels.
  Executable(Graph graph, const BuildOptions& options);
  ~Executable();

  // Runs the graph on the given memory; returns one tensor per result (undefined where the graph has none). May be
  // called by any thread. Throws the error of the first op that fails, with its name and line. As in an eager run, the
  // ops before it in program order have then written to given memory, and no op after it has. into: empty, or per
  // result a dense tensor to write it to if it has a buffer of its own; undefined: new memory. keys: the random keys,
  // one per slot of the trace.
  std::vector<Tensor> run(std::span<const GivenMemory> given, std::span<const Tensor> into = {},
                          std::span<const RandomKey> keys = {}) const;

  // Whether a run writes or releases given memory.
  bool writes_given() const { return writes_given_ || resizes_; }
  const ExecutableStatistics& statistics() const { return statistics_; }
  const Graph& graph() const { return graph_; }
  // A readable list of the steps.
  std::string to_string() const;

 private:
  struct Frame;
  class FrameLoan;
  struct Wait {  // an output that a collective may still write
    int32_t step;
    int32_t output;
  };

  void plan_buffers();
  std::vector<bool> plan_kept();
  void plan_waits();
  void plan_writes();
  void compile_kernels(int jobs);
  std::unique_ptr<Frame> make_frame() const;
  Tensor tensor_of(const Value& v, const Frame& frame) const;
  // For given memory that is lent (executable_loans.cpp).
  struct Loans;
  void plan_uses();
  std::shared_ptr<const Loans> loans_of(const Frame& frame) const;
  // For graphs that release or reallocate memory (executable_resizes.cpp).
  void find_memory(size_t buffer, Frame& frame) const;
  void refuse_released(const Step& step, const Frame& frame) const;
  void find_resized(const Step& step, Frame& frame) const;
  bool is_inside(const CallStep& step) const;
  void run_kernel(const KernelStep& step, const Frame& frame) const;
  void run_call(size_t index, const CallStep& step, Frame& frame) const;
  void run_step(size_t index, Frame& frame) const;
  void begin_writes(size_t step, const Frame& frame) const;
  [[noreturn]] void refuse_zero(const KernelStep& kernel) const;
  void run_with_blocks(const CallStep& step, const OpCall& call, std::span<const Tensor> outputs,
                       const Frame& frame) const;

  Graph graph_;
  const char* graph_key_ = "";  // names the graph in traces
  std::vector<Step> steps_;
  std::vector<std::vector<Wait>> waits_;  // before each step, and at the end
  std::vector<int64_t> arena_offsets_;    // per buffer; -1: not in the arena
  std::vector<bool> is_result_;           // made buffers that the caller gets: memory of their own
  std::vector<bool> comes_later_;         // results whose memory is allocated by the step that writes them first
  // Per step: buffers that an op of it or of a later step keeps. They have memory of their own from the first step that
  // touches them to the last; then it belongs to who kept it.
  std::vector<std::vector<int32_t>> allocates_, lets_go_;
  std::vector<int32_t> only_result_;  // per buffer: the one result that is all of it; -1: none, or several
  std::vector<std::vector<int32_t>> first_writes_;  // per step: given buffers that it writes first
  std::vector<std::vector<int32_t>>
      uses_;  // per given buffer: the steps that use it; as many as there are steps: until the end
  bool check_epilogues_ = false;
  int64_t arena_bytes_ = 0;
  bool writes_given_ = false;
  bool resizes_ = false;  // some step gives memory back, or takes it again
  ExecutableStatistics statistics_;
  mutable std::mutex loans_mutex_;
  mutable std::shared_ptr<const Loans> loans_;  // of the last call
  mutable std::mutex frames_mutex_;
  mutable std::vector<std::unique_ptr<Frame>> frames_;
};

}  // namespace tutti::graph
