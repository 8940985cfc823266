// An executable: the steps of a compiled graph with everything that does not change from call to call.
//
// Immutable once made, and called by any number of threads at once: what a call writes lies in a frame of its own. Frames
// are kept for later calls, with their arenas.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "tutti/graph/batch_step.h"
#include "tutti/graph/block_step.h"
#include "tutti/graph/kernel_step.h"
#include "tutti/graph/passes/epilogue.h"
#include "tutti/graph/passes/fuse.h"
#include "tutti/graph/passes/partition.h"

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
  std::optional<BlockStep> prologue = {}, epilogue = {}; // what makes the blocks of inputs[0], and runs on those of the output
  const TraceKernel* trace = nullptr;                    // where the call comes from, when it has one of them
  std::vector<KeyWord> keys = {};                        // words of attrs that each call has anew
};

using Step = std::variant<KernelStep, BatchStep, CallStep>;

// Memory that exists before a call: where a given buffer begins.
struct GivenMemory {
  StorageRef storage;
  int64_t first_byte = 0;
};

struct ExecutableStatistics {
  int64_t nodes = 0;       // of the graph as it was captured
  int64_t merged = 0;      // left out because another node computes the same
  int64_t unused = 0;      // left out because nobody reads their outputs
  int64_t kernels = 0;     // of a call
  int64_t launches = 0;    // that they take: several small ones can be one
  int64_t fused_nodes = 0; // nodes inside kernels and epilogues
  int64_t calls = 0;       // ops called by themselves
  int64_t bucketed = 0;    // collectives that went into the call of another one
  int64_t started_early = 0; // collectives that begin before where they stood
  int64_t prologues = 0, epilogues = 0;  // of them with a kernel that makes operand 0, or runs on blocks of the output; it is no launch of its own
  double prologue_saved_bytes = 0, epilogue_saved_bytes = 0;  // that therefore do not move
  std::vector<std::string> apart = {};   // kernels that stand beside such a call and stay apart: which, and why
  int64_t arena_bytes = 0, unplanned_bytes = 0;
  double kernel_bytes = 0;  // moved by the kernels of a call
  PartitionStatistics partition;  // of a backward inside
  double compile_ms = 0;
};

struct CollectiveOptions {
  int64_t under_way_bytes = int64_t{32} << 20;  // see passes/schedule_collectives.h
  int64_t bucket_bytes = 0;                     // see passes/bucket_collectives.h
};

struct BuildOptions {
  std::string name;   // of the function, in errors, dumps and traces
  PartitionOptions partition = {};
  CollectiveOptions collectives = {};
  FuseOptions fuse = {};
  Epilogues epilogues = Epilogues::saving;  // kernels that run on blocks of the matrix products that they follow
  bool prologues = true;         // kernels that make an operand run inside the matrix product that reads it
  bool check_epilogues = false;  // both each time also one after the other, to compare bits
  bool batch = true;             // false: a launch per kernel
  int jobs = 1;                  // kernels compiled at once
};

class Executable {
 public:
  // Compiles: merges equal nodes, leaves out unused ones, chooses what is kept for a backward inside, fuses, plans memory, compiles kernels.
  Executable(Graph graph, const BuildOptions& options);
  ~Executable();

  // Runs it on the memory of the sources; returns one tensor per result (undefined where the graph says so). Any thread.
  // Throws what the first op that fails throws, with its name and line. Given memory has been written then by the ops before it
  // in program order and by none behind it, as in an eager run.
  // into: empty, or per result a dense tensor that it is written to where it is a buffer of its own; undefined: fresh memory.
  // keys: of random numbers, per slot of the trace.
  std::vector<Tensor> run(std::span<const GivenMemory> given, std::span<const Tensor> into = {}, std::span<const RandomKey> keys = {}) const;

  // Whether a run writes memory that it is given, or gives it back.
  bool writes_given() const { return writes_given_ || resizes_; }
  const ExecutableStatistics& statistics() const { return statistics_; }
  const Graph& graph() const { return graph_; }
  // The steps in order, for people.
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
  void plan_waits();
  void plan_writes();
  void compile_kernels(int jobs);
  std::unique_ptr<Frame> make_frame() const;
  Tensor tensor_of(const Value& v, const Frame& frame) const;
  // Of graphs that give memory back or take it again (executable_resizes.cpp).
  void find_memory(size_t buffer, Frame& frame) const;
  void refuse_released(const Step& step, const Frame& frame) const;
  void find_resized(const Step& step, Frame& frame) const;
  bool is_inside(const CallStep& step) const;
  void run_kernel(const KernelStep& step, const Frame& frame) const;
  void run_call(size_t index, const CallStep& step, Frame& frame) const;
  void run_step(size_t index, Frame& frame) const;
  void begin_writes(size_t step, const Frame& frame) const;
  [[noreturn]] void refuse_zero(const KernelStep& kernel) const;
  void run_with_blocks(const CallStep& step, const OpCall& call, std::span<const Tensor> outputs, const Frame& frame) const;

  Graph graph_;
  const char* graph_key_ = "";  // names the graph in traces
  std::vector<Step> steps_;
  std::vector<std::vector<Wait>> waits_;  // before each step, and at the end
  std::vector<int64_t> arena_offsets_;    // per buffer; -1: not in the arena
  std::vector<bool> is_result_;           // made buffers that the caller gets: memory of their own
  std::vector<int32_t> only_result_;      // per buffer: the one result that is all of it; -1: none, or several
  std::vector<std::vector<int32_t>> first_writes_;  // per step: given buffers that it writes first
  bool check_epilogues_ = false;
  int64_t arena_bytes_ = 0;
  bool writes_given_ = false;
  bool resizes_ = false;                  // some step gives memory back, or takes it again
  ExecutableStatistics statistics_;
  mutable std::mutex frames_mutex_;
  mutable std::vector<std::unique_ptr<Frame>> frames_;
};

}  // namespace tutti::graph
