#include "tutti/graph/trace.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tutti/graph/held_wrappers.h"
#include "tutti/ops/engine/device_engine.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/node_call.h"
#include "tutti/runtime/numerics.h"
#include "tutti/tensor/handle_watch.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {
namespace {

thread_local Trace* running = nullptr;

// The memory that a tensor of a trace does not have.
class TracedMemory final : public StoragePlaceholder {
 public:
  TracedMemory(std::shared_ptr<TraceState> of, int32_t of_buffer)
      : StoragePlaceholder(StorageState::traced), trace(std::move(of)), buffer(of_buffer) {
    trace->tensors_on.resize(std::max(trace->tensors_on.size(), static_cast<size_t>(buffer) + 1));
    ++trace->tensors_on[static_cast<size_t>(buffer)];
  }
  ~TracedMemory() override { --trace->tensors_on[static_cast<size_t>(buffer)]; }
  [[noreturn]] void refuse_data() const override {
    if (trace->ended) {
      throw CaptureError(
          21,
          fmt::format("a tensor of the trace of '{}' was used after the trace had ended; return it from the function, "
                      "or do not store it outside",
                      trace->name));
    }
    const std::string line = user_line(call_site());
    throw CaptureError(
        12, fmt::format(
                "the elements of a tensor were read while tracing '{}'{}{}: it has none, the function runs once to see "
                "which ops it calls. Compute the value outside and pass it in, return the tensor and read the "
                "result, or read it with item() or to_contiguous() in a function that runs in segments (on_break = "
                "OnBreak::segment)",
                trace->name, line.empty() ? "" : ", at ", line));
  }
  bool decide(const Tensor& t, TensorQuestion question, const Shape& about) const override {
    if (running == nullptr || running->state() != trace) refuse_data();
    return running->decide(t, question, about);
  }
  const std::shared_ptr<TraceState> trace;
  const int32_t buffer;
};

[[noreturn]] void refuse_foreign(const TracedMemory& memory, const std::string& user) {
  if (memory.trace->ended) memory.refuse_data();
  throw CaptureError(
      29, fmt::format(
              "'{}' uses a tensor that was computed in '{}', which runs by itself and may not run at all; return the "
              "tensor from there",
              user, memory.trace->name));
}

const TracedMemory* traced_memory(const Tensor& t) {
  return dynamic_cast<const TracedMemory*>(t.storage()->placeholder());
}

// Where an argument lies in its storage is no part of the kind of a call, and what lies in front of it is not in its
// buffer. So a view of it follows it to another place, which is tried, or is refused.
void refuse_position(Trace& trace, const OpCall& call, const Tensor& view) {
  if (!trace.is_traced(view)) return;
  const Buffer& buffer = trace.graph().buffers[static_cast<size_t>(traced_memory(view)->buffer)];
  using Kind = Trace::Source::Kind;
  if (buffer.kind != Buffer::Kind::given || trace.sources()[static_cast<size_t>(buffer.source)].kind != Kind::argument)
    return;
  constexpr int64_t kFurther = 8;  // elements
  Graph elsewhere;
  std::vector<Value> values;
  for (const Tensor& t : call.inputs) {
    values.push_back({.buffer = static_cast<int32_t>(elsewhere.buffers.size()),
                      .dtype = t.dtype(),
                      .offset = t.offset() + kFurther,
                      .sizes = t.extents(),
                      .strides = t.strides()});
    elsewhere.buffers.push_back(
        {.nbytes = t.storage()->nbytes() + kFurther * itemsize(t.dtype()), .device = t.device()});
  }
  const std::vector<Tensor> moved = stand_ins(values, elsewhere);
  if (call.op.view({call.op, moved, call.attrs}).offset() == view.offset() + kFurther) return;
  throw CaptureError(
      36, fmt::format(
              "'{}' calls {}, which names elements of an argument {} by their position in its storage; a call may pass "
              "one that lies "
              "elsewhere. Take that view outside and pass it, call {} on a clone(), or use slice, unfold or diagonal",
              trace.name(), call.op.name, describe(call.inputs[0]), call.op.name));
}

class CaptureStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    Trace* trace = Trace::current();
    if (trace == nullptr) {
      for (const Tensor& t : call.inputs) {
        if (const TracedMemory* memory = traced_memory(t)) memory->refuse_data();
      }
      throw CaptureError(
          22, fmt::format("{}: an input says it belongs to a trace, and none runs on this thread", call.op.name));
    }
    trace->record(call, outputs);
  }
};

// A function, so that tensors made while the program is loaded find it registered.
StageMask capture_stage() {
  static CaptureStage stage;
  static const StageMask mask = register_stage("capture", StagePlace::capture, &stage);
  return mask;
}

// Bytes of its storage that `t` reaches, [first, second).
std::pair<int64_t, int64_t> byte_range(const Tensor& t) {
  if (t.numel() == 0) return {t.offset() * itemsize(t.dtype()), t.offset() * itemsize(t.dtype())};
  int64_t first = t.offset(), last = t.offset();
  for (size_t d = 0; d < t.strides().size(); ++d)
    (t.strides()[d] < 0 ? first : last) += (t.extents()[d] - 1) * t.strides()[d];
  return {first * itemsize(t.dtype()), (last + 1) * itemsize(t.dtype())};
}

}  // namespace

Trace::Trace(std::string name, Program* program) : state_(std::make_shared<TraceState>()), program_(program) {
  state_->name = std::move(name);
}
Trace::~Trace() { state_->ended = true; }

Trace* Trace::current() { return running; }

Trace::Scope::Scope(Trace& trace)
    : previous_(std::exchange(running, &trace)),
      stage_(capture_stage(), 0),
      previous_reads_(HostReads::set_current(&trace)),
      previous_slot_reads_(SlotReads::set_current(&trace)),
      previous_keys_(KeySource::set_current(&trace.keys_)),
      kept_places_(std::exchange(TraceContext::current().keeps_places, true)) {
  trace.keys_.set_base(current_module_path());
  if (trace.program_ != nullptr) symbols_.emplace(trace.program_->symbols());
}
Trace::Scope::~Scope() {
  running = previous_;
  HostReads::set_current(previous_reads_);
  SlotReads::set_current(previous_slot_reads_);
  KeySource::set_current(previous_keys_);
  TraceContext::current().keeps_places = kept_places_;
}

bool Trace::is_traced(const Tensor& t) const {
  const TracedMemory* memory = traced_memory(t);
  return memory != nullptr && memory->trace == state_;
}

int32_t Trace::add_given(Source source, int64_t nbytes, Device device) {
  const auto buffer = static_cast<int32_t>(graph_.buffers.size());
  graph_.buffers.push_back({.kind = Buffer::Kind::given,
                            .source = static_cast<int32_t>(sources_.size()),
                            .nbytes = nbytes,
                            .device = device});
  sources_.push_back(source);
  return buffer;
}

Tensor Trace::make_traced(int32_t buffer, const Value& v) {
  const Buffer& b = graph_.buffers[static_cast<size_t>(buffer)];
  auto storage =
      StorageRef::adopt(Storage::without_memory(b.nbytes, b.device, std::make_unique<TracedMemory>(state_, buffer)));
  Tensor t = Tensor::over(std::move(storage), v.sizes, v.strides, v.offset, v.dtype);
  t.impl()->stages |= capture_stage();
  return t;
}

// The sizes of the inside of a tensor with these: those of the dims that it has whole.
static Shape inside_sizes(const Tensor& t, const Shape& sizes) {
  const WrapperExtension* wrapper = wrapper_of(t);
  if (wrapper == nullptr) return sizes;
  Shape inside = wrapper->inside().sizes();
  for (int d = 0; d < t.ndim(); ++d) {
    if (wrapper->has_whole(t, d)) inside[static_cast<size_t>(d)] = sizes[static_cast<size_t>(d)];
  }
  return inside;
}

void Trace::add_arguments(std::span<const Tensor> given, std::vector<Tensor>& traced, Reach reach,
                          std::span<const Shape> sizes) {
  std::optional<SymGraph::Scope> symbols;
  if (program_ != nullptr) symbols.emplace(program_->symbols());
  std::vector<Tensor> actual;  // where the elements are
  for (const Tensor& t : given) actual.push_back(inside_of(t));
  struct Group {
    int64_t first, last;
    int32_t argument, buffer = -1;
    Tensor storage_of;  // the traced tensor whose storage the others of the group share
  };
  std::vector<std::pair<const Storage*, Group>> groups;
  const auto group_of = [&](const Tensor& t) -> Group& {
    return std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == t.storage().get(); })
        ->second;
  };
  for (size_t i = 0; i < actual.size(); ++i) {
    const Storage* storage = actual[i].storage().get();
    const auto [first, last] =
        reach == Reach::storages ? std::pair{int64_t{0}, storage->nbytes()} : byte_range(actual[i]);
    const auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == storage; });
    if (it == groups.end()) {
      groups.push_back({storage, {first, last, static_cast<int32_t>(i), -1, {}}});
    } else {
      it->second.first = std::min(it->second.first, first);
      it->second.last = std::max(it->second.last, last);
    }
  }
  for (auto& [storage, group] : groups) {
    // Buffers begin where the widest dtype may stand, so that every offset is a whole number of elements.
    group.first &= ~int64_t{7};
    const Device device = actual[static_cast<size_t>(group.argument)].device();
    const Tensor& first = actual[static_cast<size_t>(group.argument)];
    const int64_t lead = first.offset() * itemsize(first.dtype()) - group.first;
    group.buffer =
        add_given({Source::Kind::argument, group.argument, group.first, lead}, group.last - group.first, device);
    given_.emplace(storage, group.buffer);
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const Tensor& t = actual[i];
    const auto same = std::find_if(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const Tensor& other) { return other.is_same(given[i]); });
    if (same != given.begin() + static_cast<std::ptrdiff_t>(i)) {
      traced.push_back(traced[static_cast<size_t>(same - given.begin())]);  // one tensor, given twice
      continue;
    }
    Group& group = group_of(t);
    const int64_t offset = t.offset() - group.first / itemsize(t.dtype());
    if (!group.storage_of.defined()) {
      group.storage_of = make_traced(
          group.buffer, {.dtype = t.dtype(), .offset = offset, .sizes = t.extents(), .strides = t.strides()});
      traced.push_back(group.storage_of);
    } else {
      traced.push_back(Tensor::over(group.storage_of.storage(), t.extents(), t.strides(), offset, t.dtype()));
      traced.back().impl()->stages |= capture_stage();
    }
    const std::shared_ptr<const WrapperForm> form = form_of(given[i]);
    if (program_ != nullptr) traced.back() = program_->add(traced.back(), inside_sizes(given[i], sizes[i]));
    traced.back() = around(form, std::move(traced.back()));
    if (requires_grad(given[i])) requires_grad_(traced.back());
  }
}

Tensor Trace::add_later(const Extents& sizes, DType dtype, Device device) {
  const int32_t buffer = add_given({Source::Kind::later, later_++, 0, 0}, numel_of(sizes) * itemsize(dtype), device);
  return make_traced(buffer, {.dtype = dtype, .sizes = sizes, .strides = contiguous_strides(sizes)});
}

Tensor Trace::add_later(const Tensor& like) {
  const int64_t item = itemsize(like.dtype());
  const auto [first, last] = byte_range(like);
  const int64_t lead = like.offset() * item - first;
  const int32_t buffer = add_given({Source::Kind::later, later_++, 0, lead}, last - first, like.device());
  return make_traced(
      buffer, {.dtype = like.dtype(), .offset = lead / item, .sizes = like.extents(), .strides = like.strides()});
}

int32_t Trace::index_of_captured(const Tensor& t) const {
  const auto it =
      std::find_if(captured_.begin(), captured_.end(), [&](const Captured& c) { return c.tensor.is_same(t); });
  return it == captured_.end() ? -1 : static_cast<int32_t>(it - captured_.begin());
}

static bool is_or_holds(const Tensor& t, const Tensor& sought) {
  return t.defined() && (t.is_same(sought) || inside_of(t).is_same(sought));
}

void Trace::add_captured(const Tensor& t, const char* reader) {
  const auto leaf = std::find_if(captured_.begin(), captured_.end(),
                                 [&](const Captured& c) { return is_or_holds(c.grad_before, t); });
  captured_.push_back({t, grad_of(t), leaf == captured_.end() ? -1 : static_cast<int32_t>(leaf - captured_.begin()),
                       requires_grad(t), reader, std::make_shared<const CallSite>(call_site())});
  const Tensor& grad = captured_.back().grad_before;
  for (Captured& c : captured_) {  // a gradient that was read before its leaf
    if (is_or_holds(grad, c.tensor)) c.grad_of = static_cast<int32_t>(captured_.size()) - 1;
  }
}

bool Trace::is_inside_of_captured(const Tensor& t) const {
  return std::any_of(captured_.begin(), captured_.end(),
                     [&](const Captured& c) { return !c.tensor.is_same(t) && inside_of(c.tensor).is_same(t); });
}

void Trace::meet(const Tensor& wrapper, const char* reader) {
  if (outer_ != nullptr) {
    throw CaptureError(39, fmt::format("'{}': {} takes {}; branches and loop bodies take plain tensors only. Compute "
                                       "it outside, or work on its part there (to_local())",
                                       name(), reader, describe(wrapper)));
  }
  mode_ = numerics_mode();
  if (traced_memory(inside_of(wrapper)) != nullptr) return;  // of a trace, which looks at the insides
  if (HandleNotes* notes = HandleNotes::current()) notes->read(wrapper);
  if (index_of_captured(wrapper) < 0) add_captured(wrapper, reader);
}

void meet_wrappers(const OpCall& call) {
  if (running == nullptr) [[likely]]
    return;
  for (const Tensor& t : call.inputs) {
    if (wrapper_of(t) != nullptr) running->meet(t, call.op.name);
  }
}

// `t` has memory, or belongs to a trace around this one.
Value Trace::captured_value(const Tensor& t) {
  refuse_answer(t);
  Value v{.dtype = t.dtype(), .offset = t.offset(), .sizes = t.extents(), .strides = t.strides()};
  const auto [it, is_new] = given_.try_emplace(t.storage().get(), static_cast<int32_t>(graph_.buffers.size()));
  v.buffer = it->second;
  if (is_new) {
    add_given({Source::Kind::captured, static_cast<int32_t>(captured_.size()), 0, 0}, t.storage()->nbytes(),
              t.device());
  }
  if (is_new || index_of_captured(t) < 0) add_captured(t, reader_);
  const Source& source = sources_[static_cast<size_t>(graph_.buffers[static_cast<size_t>(v.buffer)].source)];
  v.offset -= source.first_byte / itemsize(t.dtype());
  const auto [first, last] = byte_range(t);
  if (source.kind == Source::Kind::argument && t.numel() > 0 &&
      (first < source.first_byte || last - source.first_byte > graph_.buffers[static_cast<size_t>(v.buffer)].nbytes))
    throw HeldReachesFurther(fmt::format(
        "'{}' holds {}, which reaches bytes of an argument's storage that no argument reaches", name(), describe(t)));
  return v;
}

Value Trace::value_of(const Tensor& handle) {
  const Tensor t = as_called(handle);
  const TracedMemory* memory = traced_memory(t);
  if (memory == nullptr && wrapper_of(t) != nullptr) {
    throw CaptureError(
        39,
        fmt::format(
            "'{}' takes {} where a plain tensor is expected; pass its part (to_local()) or the whole (full_tensor())",
            name(), describe(t)));
  }
  // What is inside of a wrapper is replaced when the wrapper is.
  if (HandleNotes* notes = HandleNotes::current(); notes != nullptr && memory == nullptr && !is_inside_of_captured(t))
    notes->read(handle);
  if (memory != nullptr && memory->trace != state_ && !reads_from(*memory->trace)) refuse_foreign(*memory, name());
  Value v = memory == nullptr || memory->trace != state_ ? captured_value(t)
                                                         : Value{.buffer = memory->buffer,
                                                                 .dtype = t.dtype(),
                                                                 .offset = t.offset(),
                                                                 .sizes = t.extents(),
                                                                 .strides = t.strides()};
  v.version = graph_.buffers[static_cast<size_t>(v.buffer)].versions - 1;
  return v;
}

std::shared_ptr<const CallSite> Trace::site_of(const TraceContext& context) {
  std::shared_ptr<const CallSite>& of_node = sites_[context.sequence];
  if (context.phase == TracePhase::backward && context.sequence >= 0 && of_node) return of_node;
  auto site = std::make_shared<const CallSite>(call_site());
  if (context.sequence >= 0 && !of_node) of_node = site;
  return site;
}

Origin Trace::origin() {
  const TraceContext& context = TraceContext::current();
  return {
      .region = autograd::current_region(), .phase = context.phase, .place = context.place, .site = site_of(context)};
}

Tensor Trace::add_output(Node& node, DType dtype, const Extents& sizes, Device device) {
  node.outputs.push_back({.buffer = static_cast<int32_t>(graph_.buffers.size()),
                          .dtype = dtype,
                          .sizes = sizes,
                          .strides = contiguous_strides(sizes)});
  graph_.buffers.push_back({.nbytes = numel_of(sizes) * itemsize(dtype), .device = device});
  return make_traced(node.outputs.back().buffer, node.outputs.back());
}

void Trace::rebind_inputs(const OpCall& call, std::span<const Tensor> outputs) {
  for (const int8_t input : call.op.becomes) {
    if (input < 0) continue;
    const Tensor& t = call.inputs[static_cast<size_t>(input)];
    const bool known =
        std::any_of(rebound_.begin(), rebound_.end(), [&](const Rebound& r) { return r.tensor.is_same(t); });
    if (!known) rebound_.push_back({t, t.view_as(t.extents(), t.strides(), t.offset())});
  }
  finish_rebinding(call, outputs);
}

void Trace::record(const OpCall& call, std::span<Tensor> outputs) {
  reader_ = call.op.name;
  if (program_ == nullptr) record(call, outputs, nullptr);
  else record_symbolic(call, outputs);
  reader_ = "the function";
}

void Trace::record(const OpCall& call, std::span<Tensor> outputs, const Origin* given) {
  if (stopped_at_read()) throw ReadReached{};  // the function caught the first
  const OpDef& op = call.op;
  if (outer_ != nullptr) refuse_outer_writes(call);
  if (op.view) {
    if (!is_traced(call.inputs[0])) value_of(call.inputs[0]);  // meets a leaf of which only views are used
    if (given == nullptr && TraceContext::current().sequence >= 0)
      site_of(TraceContext::current());  // for the node of its gradient
    outputs[0] = op.view(call);
    refuse_position(*this, call, outputs[0]);
    if (traced_memory(outputs[0]) != nullptr) outputs[0].impl()->stages |= capture_stage();
    rebind_inputs(call, outputs);
    return;
  }
  OutputMetas metas;
  op.infer(call, metas);
  begin_writes(call);
  Node node{.op = &op, .attrs = call.attrs, .origin = given != nullptr ? *given : origin()};
  node.keys = keys_.slots_in(op, call.attrs);
  if (outer_ != nullptr) refuse_outer_keys(call);
  for (const Tensor& t : call.inputs) node.inputs.push_back(value_of(t));
  const Device device = device_of(call, {});
  if (!engine_of(call, {}).runs_compiled_functions()) {
    throw UsageError(
        fmt::format("{}: the tensor {} is on {}, and compiled functions run on the cpu; copy it there, or call the "
                    "function without compile()",
                    op.name, describe(call.inputs[0]), to_string(device)));
  }
  for (int k = 0; k < metas.count; ++k) {
    Tensor& output = outputs[static_cast<size_t>(k)];
    if (const int written = op.writes[k]; written >= 0) {
      output = call.inputs[static_cast<size_t>(written)];
      Value v = node.inputs[static_cast<size_t>(written)];
      v.version = graph_.buffers[static_cast<size_t>(v.buffer)].versions++;
      node.outputs.push_back(v);
      continue;
    }
    output = add_output(node, metas.meta[k].dtype, concrete(metas.meta[k].sizes), device);
  }
  node.fails = fails_of(call, node.outputs);
  graph_.nodes.push_back(std::move(node));
  rebind_inputs(call, outputs);
}

}  // namespace tutti::graph
