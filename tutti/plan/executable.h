// An executable: the steps of a compiled graph with everything that does not change from call to call.
//
// It is immutable once constructed and may be called by any number of threads concurrently: the memory a call writes is
// in a frame of its own. Frames and their arenas are kept for later calls; large buffers are allocated for as long as
// they live.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "tutti/plan/batch_step.h"
#include "tutti/plan/block_step.h"
#include "tutti/plan/kernel_step.h"
#include "tutti/plan/passes/epilogue.h"
#include "tutti/plan/passes/fuse.h"
#include "tutti/plan/passes/partition.h"

namespace tutti {
class MemoryLender;  // lent_memory.h
}

namespace tutti::graph {

class ControlStep;

// One op, called by itself.
struct CallStep {
  const OpDef* op;
  Attrs attrs;
  std::vector<Value> inputs, outputs;
  std::vector<bool> copy_first;  // per input: the op writes memory that this input reads elsewhere; empty: none
  bool check_only = false;       // looks at the operands, as an eager call would before it runs
  Origin origin = {};
  std::shared_ptr<const ControlStep> control = nullptr;  // what runs in the place of the op's kernel
  std::optional<BlockStep> prologue = {},
                           epilogue = {};  // what makes the blocks of inputs[0], and runs on those of the output
  const TraceKernel* trace = nullptr;      // where the call comes from, when it has one of them
  std::vector<int32_t> keys = {};          // slots of the random keys that each call has anew
};

using Step = std::variant<KernelStep, BatchStep, CallStep>;

// Memory that exists before a call: where a given buffer begins.
struct GivenMemory {
  StorageRef storage;
  int64_t first_byte = 0;
  MemoryLender* lender = nullptr;  // of this memory, which may not be there before it is asked for
};

struct ExecutableStatistics {
  int64_t nodes = 0;          // nodes of the captured graph
  int64_t merged = 0;         // nodes removed because another node computes the same
  int64_t unused = 0;         // nodes removed because their outputs are not read
  int64_t kernels = 0;        // kernels run by one call
  int64_t launches = 0;       // launches they take: several small kernels can share one
  int64_t fused_nodes = 0;    // nodes inside kernels, prologues and epilogues
  int64_t calls = 0;          // ops that are called individually
  int64_t bucketed = 0;       // collectives merged into the call of another one
  int64_t joined = 0;         // matrix products that became part of the collective next to them
  int64_t started_early = 0;  // collectives that start earlier than in the program
  int64_t prologues = 0,
          epilogues = 0;  // calls with a kernel attached that computes operand 0, or runs on blocks of the output
  double prologue_saved_bytes = 0, epilogue_saved_bytes = 0;  // memory traffic avoided by them
  std::vector<std::string> apart = {};           // kernels next to such a call that were not attached, with the reason
  int64_t arena_bytes = 0, unplanned_bytes = 0;  // memory for temporaries, and what they would take without sharing it
  double kernel_bytes = 0;                       // memory traffic of the kernels of one call
  PartitionStatistics partition;                 // of a backward inside the graph
  double compile_ms = 0;
};

struct CollectiveOptions {
  int64_t under_way_bytes = int64_t{32} << 20;  // see passes/schedule_collectives.h
  int64_t bucket_bytes = 0;                     // see passes/bucket_collectives.h
  bool join_products = false;                   // see passes/join_products.h
};

struct BuildOptions {
  std::string name;  // the name of the function in errors, dumps and traces
  PartitionOptions partition = {};
  CollectiveOptions collectives = {};
  FuseOptions fuse = {};
  Epilogues epilogues = Epilogues::saving;  // which kernels run on blocks of the output of a preceding matrix product
  bool prologues = true;         // kernels that compute an operand run inside the matrix product that reads it
  bool check_epilogues = false;  // also run prologues and epilogues separately and compare bits
  bool batch = true;             // false: one launch per kernel
  int jobs = 1;                  // how many kernels are compiled in parallel
};

class Executable {
 public:
  // Compiles the graph: merges equal nodes, removes unused ones, chooses what is kept for a backward in the same graph,
  // fuses, plans memory and compiles kernels.
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

  void add_steps(const std::vector<Group>& groups, const BuildOptions& options);
  void add_call(const Node& node, bool check_only, const BuildOptions& options);
  void attach_kernels(std::vector<Group>& groups, const BuildOptions& options);
  void add_blocks(const Group& call, const std::vector<bool>& escapes);
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
