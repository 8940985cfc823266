// Trace: records the ops that a function calls when it runs on tensors without elements.
//
// While a Trace::Scope lives, op calls on this thread are appended to the trace's graph instead of being run. Tracing
// is below autograd, so the ops of a backward are recorded like all others. Tensors with memory that the function uses
// although they are not arguments become captured inputs: each call uses their current data, never that of the time of
// the trace. Used by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tutti/autograd/tape.h"
#include "tutti/graph/keys.h"
#include "tutti/graph/program.h"
#include "tutti/plan/capture_error.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti {
enum class NumericsMode : uint8_t;
}  // namespace tutti

namespace tutti::graph {

// State shared by a trace and its tensors, which either may outlive.
struct TraceState {
  std::string name;  // name of the traced function
  bool ended = false;
  std::vector<int32_t> tensors_on;  // per buffer, the number of the trace's storages that stand for it
};

// Thrown through a traced function at a read whose value is not known yet: the ops called so far must run first.
struct ReadReached {};

// A summary of what a function did up to a read, to detect whether it does the same when it is traced again.
struct SegmentMark {
  size_t ops;                    // a hash of the ops, and of the sizes of carried buffers
  std::vector<int32_t> carried;  // intermediate buffers that tensors stand for at the read
  friend bool operator==(const SegmentMark&, const SegmentMark&) = default;
};

// How much of the storages of its arguments a trace knows. Bytes that no argument reaches are known when a tensor that
// the function holds reaches them, which shows while it is traced.
enum class Reach : uint8_t { arguments, storages };

// A held tensor reaches further than the arguments on its storage: trace again with Reach::storages.
class HeldReachesFurther : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A tensor that an op made another one, with a view of what it was before.
struct Rebound {
  Tensor tensor, before;
};

// A tensor that a function uses without having been given it, held as long as the compiled function.
struct Captured {
  Tensor tensor;
  Tensor grad_before;          // of a leaf: its gradient when the trace met it
  int32_t grad_of = -1;        // this was the gradient of that captured leaf: each call reads the one the leaf then has
  bool requires_grad = false;  // when the trace met it
  const char* read_by = "";    // the op that read it first
  std::shared_ptr<const CallSite> site = {};
};

// A slot that a function reads, and the tensor that it found there.
struct SlotRead {
  std::shared_ptr<const TensorSlot> slot;
  Tensor found;
  bool holds_another() const { return !slot->known().is_same(found); }
};

class Trace : private HostReads, private SlotReads {
 public:
  // program: if not null, the calls are also recorded in it, with symbolic sizes.
  explicit Trace(std::string name, Program* program = nullptr);
  // For a part of the function traced by `outer` that runs separately, such as a branch. It may read tensors of the
  // enclosing traces, which become captured inputs, but must not write them. `outer` must outlive this trace.
  Trace(const std::string& part, Trace& outer);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static Trace* current();
  // Records the calls of this thread while it lives.
  class Scope {
   public:
    explicit Scope(Trace& trace);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Trace* previous_;
    StageScope stage_;
    std::optional<SymGraph::Scope> symbols_;
    HostReads* previous_reads_;
    SlotReads* previous_slot_reads_;
    KeySource* previous_keys_;
    bool kept_places_;  // whether ModuleScopes were noted before
  };

  // Adds stand-ins for the arguments `given` to `traced`, wrappers for wrappers. Arguments that share a storage share a
  // buffer, which starts at the lowest byte that any of them accesses, or at the start of the storage, depending on
  // `reach`. sizes: symbolic sizes for each argument when a program is recorded; empty: the actual sizes.
  void add_arguments(std::span<const Tensor> given, std::vector<Tensor>& traced, Reach reach,
                     std::span<const Shape> sizes = {});
  // A dense stand-in for a tensor that exists only when the graph runs, such as a cotangent.
  Tensor add_later(const Extents& sizes, DType dtype, Device device);
  // The same with the sizes and strides of `like`.
  Tensor add_later(const Tensor& like);
  // The same for the cotangent of `of`, a wrapper where `of` is one.
  Tensor add_cotangent(const Tensor& of);

  // Call it for each wrapper that an op takes: one that is held is noted as such, for its gradient and because it may
  // be replaced. Its memory is met when its inside is.
  void meet(const Tensor& wrapper, const char* reader);
  // The numerics mode, if the function has to do with wrappers, whose stages choose by it what they call.
  std::optional<NumericsMode> mode_of_wrappers() const { return mode_; }
  // The current value of `t`, which is no wrapper, in the graph. A tensor with memory that is new to the trace becomes
  // a captured input.
  Value value_of(const Tensor& t);
  bool is_traced(const Tensor& t) const;
  void record(const OpCall& call, std::span<Tensor> outputs);
  // Records a call of another trace; sizes are integers.
  void repeat(const OpCall& call, std::span<Tensor> outputs, const Origin& origin) { record(call, outputs, &origin); }
  bool decide(const Tensor& t, TensorQuestion question, const Shape& about) {
    return program_->decide(t, question, about);
  }
  // Records that `condition` must be true.
  void record_check(std::shared_ptr<const ControlBody> body, const Tensor& condition);
  void repeat_check(std::shared_ptr<const ControlBody> body, const Tensor& condition, const Origin& origin);
  // Appends a node that is not a call of an op; returns its outputs, which are dense.
  std::vector<Tensor> append(Node node, std::span<const OutputMeta> metas, Device device);

  // From now on the function may read elements: the first reads return `answers`, and a new graph begins after each of
  // them. A further read ends the trace with ReadReached; the results are then the value to be read and the carried
  // buffers.
  void answer_reads(std::span<const Tensor> answers);
  // Ops traced from now on run in a later call, or possibly never.
  void end_forward() { forward_has_ended_ = true; }
  bool stopped_at_read() const { return segments_.size() > answers_.size(); }
  // The segments that end in a read.
  const std::vector<SegmentMark>& segments() const { return segments_; }
  const CallSite& last_read() const { return last_read_; }

  TraceKeys& keys() { return keys_; }
  Program* program() const { return program_; }
  const std::string& name() const { return state_->name; }
  // Tells traces apart, also after one has ended.
  const std::shared_ptr<TraceState>& state() const { return state_; }

  Graph& graph() { return graph_; }
  // Given buffers by source: first those of the arguments, later ones and captured tensors, in the order they were met.
  struct Source {
    enum class Kind : uint8_t { argument, later, captured, carried } kind;
    int32_t index;  // the argument whose storage it is, the later tensor, the captured tensor, the buffer carried from
                    // a segment before
    int64_t first_byte;  // of the buffer, in the storage as it was traced
    int64_t lead;        // bytes from there to the first element of the argument
  };
  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<Captured>& captured() const { return captured_; }
  int32_t index_of_captured(const Tensor& t) const;  // -1: none
  const std::vector<Rebound>& rebound() const { return rebound_; }
  const std::vector<SlotRead>& slots() const { return slots_; }

 private:
  Tensor elements_of(const Tensor& t) override;
  Tensor read(const std::shared_ptr<const TensorSlot>& slot) override;
  void begin_segment();
  void refuse_answer(const Tensor& t) const;
  void add_captured(const Tensor& t, const char* reader);
  bool is_inside_of_captured(const Tensor& t) const;
  Tensor add_cotangent_of(const Tensor& of, DType dtype);
  void record(const OpCall& call, std::span<Tensor> outputs, const Origin* origin);
  void record_symbolic(const OpCall& call, std::span<Tensor> outputs);
  // The tensor of the traced call that one with symbolic sizes stands for; others stand for themselves.
  Tensor as_called(const Tensor& t) const { return program_ != nullptr && is_traced(t) ? program_->as_called(t) : t; }
  std::shared_ptr<const CallSite> site_of(const TraceContext& context);
  Value captured_value(const Tensor& t);
  bool reads_from(const TraceState& other) const;
  void refuse_outer_writes(const OpCall& call);
  void refuse_outer_keys(const OpCall& call) const;
  Origin origin();
  Tensor add_output(Node& node, DType dtype, const Extents& sizes, Device device);
  void rebind_inputs(const OpCall& call, std::span<const Tensor> outputs);
  int32_t add_given(Source source, int64_t nbytes, Device device);
  Tensor make_traced(int32_t buffer, const Value& geometry);

  std::shared_ptr<TraceState> state_;
  Trace* outer_ = nullptr;
  Program* program_ = nullptr;
  Graph graph_;
  std::vector<Source> sources_;
  std::vector<Captured> captured_;
  std::vector<Rebound> rebound_;
  std::vector<SlotRead> slots_;
  std::unordered_map<const Storage*, int32_t> given_;                   // storage with memory -> its buffer
  std::unordered_map<int64_t, std::shared_ptr<const CallSite>> sites_;  // of nodes of the tape
  const char* reader_ = "the function";                                 // the op that is being recorded
  int32_t later_ = 0;
  TraceKeys keys_;
  bool may_read_ = false;
  bool forward_has_ended_ = false;
  std::vector<Tensor> answers_, given_answers_;  // the second: copies, as the function got them
  std::vector<SegmentMark> segments_;
  CallSite last_read_;
  int32_t carried_ = 0;
  std::optional<NumericsMode> mode_;
};

}  // namespace tutti::graph
