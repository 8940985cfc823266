// The captured program: calls of ops over views of buffers.
//
// A buffer is memory: of an argument, of a tensor that the traced function holds, or made inside. It has versions; an op
// that writes in place makes the next one. A value is a strided view of one version. So reads and writes, views and
// aliases mean in the graph what they mean when the ops run one by one, and program order is one legal order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/keys.h"
#include "tutti/ops/engine/op_def.h"
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
    made,   // made by the node that writes version 0
  };
  Kind kind = Kind::made;
  int32_t source = -1;
  int64_t nbytes = 0;
  Device device;
  int32_t versions = 1;
};

// Where a node comes from.
struct Origin {
  uint64_t region = 0;   // of a checkpointed region that is recomputed; 0: none
  // For traces: what the running code said when the node was captured.
  TracePhase phase = TracePhase::forward;
  const TracePlace* place = nullptr;
  std::shared_ptr<const CallSite> site;  // of a backward op: of the op whose gradient it computes
};

struct ControlBody;

// Whether what a node reads can make it throw, and when it knows; see failure.h.
enum class Fails : uint8_t {
  never,
  before_writing,  // it looks at its operands first
  while_writing,   // its kernel reports it at the end
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  Origin origin;
  std::vector<Value> after = {};  // values that must be there before it runs, though it does not read them
  std::shared_ptr<const ControlBody> control = nullptr;  // of a node that decides while it runs, see control_body.h
  std::vector<KeyWord> keys = {};  // words of attrs that each call has anew
  Fails fails = Fails::never;
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;     // program order
  std::vector<Value> results;  // buffer -1: undefined
};

std::string to_string(const Value& value);
// `text` with `prefix` in front of every line.
std::string indented(const std::string& text, const char* prefix);
// One line per node, for people.
std::string to_string(const Graph& graph);

// Whether a node keeps its place among the ordered ones. It stays when nobody reads its outputs, as one that can fail does.
bool is_ordered(const Node& node);
// Whether a node does more than give its outputs: it writes memory, or other ranks notice it.
bool has_effect(const Node& node);

// Throws InternalError unless every value lies in its buffer and is written before it is read, and every version is
// written once. Runs between passes.
void check(const Graph& graph);

}  // namespace tutti::graph
