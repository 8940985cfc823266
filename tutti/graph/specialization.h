// Specialization: one compiled form of a function, for one kind of arguments.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/graph/held_watch.h"
#include "tutti/graph/partial_backward.h"
#include "tutti/graph/symbols.h"
#include "tutti/graph/trace.h"
#include "tutti/plan/executable.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// Where a result tensor comes from.
struct ResultSource {
  enum class Kind : uint8_t { graph, argument, captured } kind;
  int32_t index;  // of the forward's results, of the argument, of the captured tensor
  bool differentiable = false;
  std::shared_ptr<const WrapperForm> form = {};  // of a result of the graph that is the inside of a wrapper
  int32_t copied =
      -1;  // the argument of which a result of the graph is a view that is a copy, see WrapperExtension::is_copy()
};

// A leaf whose gradient the function set: at the end of a call it becomes a result of the forward, or undefined.
struct GradWrite {
  int32_t argument = -1;  // whose gradient grows by it, or
  int32_t captured = -1;  // whose gradient it becomes
  int32_t result = -1;    // of the forward; -1: undefined
  std::shared_ptr<const WrapperForm> form = {};
};

// A tensor that an op made another one: at the end of a call it becomes a result of the forward.
struct Rebinding {
  int32_t argument = -1;  // or
  int32_t captured = -1;
  int32_t result = 0;
};

// The view that a captured tensor was in the trace.
struct HeldView {
  const Storage* storage;  // only for comparison
  int64_t offset;
  Extents sizes, strides;
  // The first argument on the same memory, or -1, and its byte offset from this tensor.
  int32_t argument;
  int64_t argument_bytes;
  bool moves = false;  // calls replace its memory
  static HeldView of(const Tensor& t, std::span<const Tensor> arguments);
};

// Whether a held tensor lies as it did, and requires grad as it did.
bool has_place(const Captured& held, const HeldView& was);

// The backward of a function whose results require grad. What it reads of the forward is kept from call to call of it.
struct JointBackward {
  std::unique_ptr<Executable> executable;  // all results were used
  std::unique_ptr<const PartialBackwards>
      partial;  // some were, or one in several places; null when there is one result
  std::vector<Trace::Source>
      sources;              // of the backward's graph; kind `later`: index counts cotangents, then saved buffers
  int32_t first_saved = 0;  // results of the forward from here on are what the backward reads
  struct Leaf {
    int32_t argument = -1;
    int32_t captured = -1;
  };
  std::vector<Leaf> leaves;             // inputs of the autograd node
  std::vector<DType> cotangent_dtypes;  // of the differentiable results, in order
  std::vector<bool> consumes;           // per such result: ops of the function consume it, too; empty when there is one
  std::vector<bool> adds_further;       // and `partial` adds its cotangents behind theirs one by one
  std::vector<std::shared_ptr<const WrapperForm>> cotangent_forms,
      grad_forms;  // of the cotangents and of the executable's results

  // Per cotangent the buffer of `graph`, the backward's, that holds it; -1: it is not read.
  std::vector<int32_t> cotangent_buffers(const Graph& graph) const;
};

class Continuations;

// The state of a call between two segments of the function.
struct Progress {
  std::vector<Tensor> read;     // the values read by the host, in order
  std::vector<Tensor> carried;  // intermediate buffers that may still be needed
  std::vector<RandomKey> keys;  // one per slot used so far
  bool has_written = false;     // whether given memory has been written
};

struct Specialization {
  Guards guards;
  std::vector<Trace::Source> sources;
  std::vector<KeySlot> keys;
  std::vector<Captured> captured;
  std::vector<HeldView> held;        // per captured tensor
  std::optional<NumericsMode> mode;  // the only one in which it may be called
  std::shared_ptr<HeldWatch> watch;  // over the trace that it comes from
  std::unique_ptr<Executable> forward;
  std::vector<ResultSource> results;
  std::vector<GradWrite> grad_writes;
  std::vector<Rebinding> rebindings;
  std::unique_ptr<JointBackward> backward;
  PartitionStatistics partition;  // between forward and backward, in one graph or two
  std::shared_ptr<const void> structure;
  std::vector<SegmentMark> segments;  // of the function up to the read that this one ends in, or up to the last one
  std::shared_ptr<Continuations> continuations;  // when it ends in a read: there are no results
  std::string read_at;                           // the line that reads; "": unknown

  // Whether the arguments share memory with captured tensors just as they did in the trace, and captured leaves have
  // gradients where the trace read some.
  bool captured_state_holds(const Leaves& arguments) const;
  // The captured tensor `i` of a call: today the one that the trace met, which `watch` keeps true.
  const Tensor& held_now(int32_t i) const { return captured[static_cast<size_t>(i)].tensor; }
  // The tensor whose memory the source `i`, a captured tensor, is at a call: that tensor, or the gradient that its leaf
  // has now.
  Tensor read_now(int32_t i) const;
  // The memory of the sources for a call; `later` is empty in a forward.
  std::vector<GivenMemory> memory_of(const std::vector<Trace::Source>& list, std::span<const Tensor> arguments,
                                     std::span<const Tensor> later, std::span<const Tensor> carried) const;
};

// The segments that follow a read, one for each value that was read there. May be used by any thread.
class Continuations {
 public:
  // Null when this value has not been read before, or only with other captured state.
  std::shared_ptr<const Specialization> find(const Tensor& value, const Leaves& arguments) const;
  // Drops segments from a trace that is no longer valid.
  void drop(const HeldWatch& watch);
  // Drops the oldest segment when there are already `limit`.
  void add(const Tensor& value, std::shared_ptr<const Specialization> next, size_t limit);
  struct Entry {
    Tensor value;
    std::shared_ptr<const Specialization> next;
  };
  std::vector<Entry> entries() const;

 private:
  mutable std::mutex mutex_;  // protects entries_
  std::vector<Entry> entries_;
};

// The rest of the work after the function has been traced: passes, plans and kernels. Call it once, on any thread.
using Build = std::function<std::shared_ptr<const Specialization>()>;

// Traces the function. Throws what the function throws, and CaptureError. progress: the function may read elements and
// continues after those already read.
Build specialize(const Leaves& arguments, TraceFn trace, const BuildOptions& options, double* trace_ms,
                 const Progress* progress = nullptr);

// Runs the function once more on stand-ins, for what it reads now; symbols: with symbolic sizes. Nothing when those
// cannot follow it. Throws what the function throws.
std::optional<HeldReads> reads_again(const Leaves& arguments, TraceFn trace, const BuildOptions& options,
                                     const std::optional<Symbols>& symbols, const Progress* progress);

// Runs one that ends in a read, and adds to `progress` what it gave.
void run_segment(const Specialization& segment, const Leaves& arguments, Progress& progress);

// Runs the function op by op on the arguments of the call, which it holds, and gives the tensors of its result.
using Rerun = std::function<void(std::vector<Tensor>& results)>;
using MakeRerun = FunctionRef<Rerun()>;

// Replays. `self` is held by what the results remember of it.
std::vector<Tensor> replay(const std::shared_ptr<const Specialization>& self, const Leaves& arguments, MakeRerun rerun,
                           Progress progress = {});

}  // namespace tutti::graph
