// Graph: the captured program, as calls of ops on views of buffers.
//
// A buffer is the memory of an argument, of a captured tensor, or of an intermediate result. It has versions; an op
// that writes in place creates the next one. A value is a strided view of one version. Reads and writes, views and
// aliases therefore have the same meaning in the graph as when the ops run one by one, and program order is a legal
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/ops/engine/op_def.h"
#include "tutti/plan/key_slots.h"
#include "tutti/runtime/trace/source_lines.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::graph {

struct Value {
  int32_t buffer = -1;
  int32_t version = 0;
  DType dtype = DType::f32;
  int64_t offset = 0;  // elements of dtype from the start of the buffer
  Extents sizes, strides;
  friend bool operator==(const Value&, const Value&) = default;
};

struct Buffer {
  enum class Kind : uint8_t {
    given,  // memory that exists before the call: that of Source `source`
    made,   // allocated for the node that writes version 0
  };
  Kind kind = Kind::made;
  int32_t source = -1;
  int64_t nbytes = 0;
  Device device;
  int32_t versions = 1;
};

// Where a node comes from.
struct Origin {
  uint64_t region = 0;  // number of the recomputed checkpoint region; 0: none
  // The trace context of the running code when the node was captured.
  TracePhase phase = TracePhase::forward;
  const TracePlace* place = nullptr;
  std::shared_ptr<const CallSite> site;  // for a backward op, that of the op whose gradient it computes
};

struct ControlBody;

// Whether the data that a node reads can make it throw, and when this is detected; see failure.h.
enum class Fails : uint8_t {
  never,
  before_writing,  // by a check of the operands before it runs
  while_writing,   // by the kernel, which reports it at the end
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  Origin origin;
  std::vector<Value> after = {};  // values that must be complete before it runs, although it does not read them
  std::shared_ptr<const ControlBody> control = nullptr;  // for a control flow node, see control_body.h
  std::vector<int32_t> keys = {};  // slots of the random keys among the attrs, which differ from call to call
  Fails fails = Fails::never;
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;     // program order
  std::vector<Value> results;  // buffer -1: undefined
};

// The bytes of its buffer that a value reaches, [first, second); none of a value without elements.
std::pair<int64_t, int64_t> reach(const Value& value);
std::string to_string(const Value& value);
// `text` with `prefix` before every line.
std::string indented(const std::string& text, const char* prefix);
// A readable form with one line per node.
std::string to_string(const Graph& graph);

// Whether a node keeps its order relative to other ordered nodes. Like a node that can fail, it is kept even if its
// outputs are not read.
bool is_ordered(const Node& node);
// Whether a node has effects besides its outputs: it writes memory or communicates with other ranks.
bool has_effect(const Node& node);

// Throws InternalError unless every value is within its buffer and is written before it is read, and every version is
// written exactly once. Runs between passes.
void check(const Graph& graph);

}  // namespace tutti::graph
