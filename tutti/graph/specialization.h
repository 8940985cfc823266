// One compiled form of a function, for arguments of one kind.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/graph/executable.h"
#include "tutti/graph/symbols.h"
#include "tutti/graph/trace.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// Where a result tensor comes from.
struct ResultSource {
  enum class Kind : uint8_t { graph, argument, captured } kind;
  int32_t index;  // of the forward's results, of the argument, of the captured tensor
  bool differentiable = false;
};

// A leaf whose gradient the function set: at the end of a call it becomes a result of the forward, or undefined.
struct GradWrite {
  int32_t argument = -1;  // whose gradient grows by it, or
  int32_t captured = -1;  // whose gradient it becomes
  int32_t result = -1;    // of the forward; -1: undefined
};

// A tensor that an op made another one: at the end of a call it becomes a result of the forward.
struct Rebinding {
  int32_t argument = -1;  // or
  int32_t captured = -1;
  int32_t result = 0;
};

// What a held tensor was in the trace.
struct HeldView {
  const Storage* storage;  // to compare with, nothing else
  int64_t offset;
  Extents sizes, strides;
  // The first argument on the same memory, and how many bytes that begins behind this; -1: none.
  int32_t argument;
  int64_t argument_bytes;
  static HeldView of(const Tensor& t, std::span<const Tensor> arguments);
};

// Whether a held tensor lies as it did, and requires grad as it did.
bool has_place(const Captured& held, const HeldView& was);

// The backward of a function whose results require grad. What it reads of the forward is kept from call to call of it.
struct JointBackward {
  std::unique_ptr<Executable> executable;
  std::vector<Trace::Source> sources;   // of the backward's graph; kind `later`: index counts cotangents, then saved buffers
  int32_t first_saved = 0;              // results of the forward from here on are what the backward reads
  std::vector<int32_t> argument_leaves; // inputs of the autograd node: arguments, then captured leaves
  std::vector<int32_t> captured_leaves;
  std::vector<DType> cotangent_dtypes;  // of the differentiable results, in order
};

struct Specialization {
  Guards guards;
  std::vector<Trace::Source> sources;
  std::vector<Captured> captured;
  std::vector<HeldView> held;  // per captured tensor
  std::unique_ptr<Executable> forward;
  std::vector<ResultSource> results;
  std::vector<GradWrite> grad_writes;
  std::vector<Rebinding> rebindings;
  std::unique_ptr<JointBackward> backward;
  PartitionStatistics partition;  // between forward and backward, in one graph or two
  std::shared_ptr<const void> structure;

  // Whether the arguments share memory with captured tensors just as they did in the trace, and captured leaves have
  // gradients where the trace read some.
  bool captured_state_holds(const Leaves& arguments) const;
  // The memory of the sources for a call; `later` is empty in a forward.
  std::vector<GivenMemory> memory_of(const std::vector<Trace::Source>& list, std::span<const Tensor> arguments,
                                     std::span<const Tensor> later) const;
};

// What is left to do when the function has been traced: passes, plans and kernels. Call it once, on any thread.
using Build = std::function<std::shared_ptr<const Specialization>()>;

// Traces. Throws what the function throws, and CaptureError.
Build specialize(const Leaves& arguments, TraceFn trace, const BuildOptions& options, double* trace_ms);

// Replays. `self` is held by what the results remember of it.
std::vector<Tensor> replay(const std::shared_ptr<const Specialization>& self, const Leaves& arguments);

}  // namespace tutti::graph
