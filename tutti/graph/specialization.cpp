#include "tutti/graph/specialization.h"

#include <algorithm>
#include <chrono>

#include "tutti/autograd/backward.h"
#include "tutti/graph/joint.h"
#include "tutti/tensor/rebind.h"

namespace tutti::graph {
namespace {

// Gradients that the function set on leaves, and the memory that ops gave to tensors, are those of a trace: the tensors
// that the function holds get back what they had.
class Restorer {
 public:
  explicit Restorer(const Trace& trace) : trace_(trace) {}
  ~Restorer() {
    for (const Rebound& r : trace_.rebound()) {
      if (!trace_.is_traced(r.before)) rebind(r.tensor, r.before);
    }
    for (const Captured& c : trace_.captured()) {
      if (autograd::meta_of(c.tensor) != nullptr && !is_same_grad(c)) set_grad(c.tensor, c.grad_before);
    }
  }
  static bool is_same_grad(const Captured& c) {
    const Tensor now = grad_of(c.tensor);
    return now.defined() == c.grad_before.defined() && (!now.defined() || now.is_same(c.grad_before));
  }

 private:
  const Trace& trace_;
};

// What a traced function left behind, in tensors of the trace.
struct Outcome {
  std::vector<ResultSource> results;
  std::vector<GradWrite> grad_writes;
  std::vector<Rebinding> rebindings;
  std::vector<Tensor> held_results, held_grad_leaves, held_rebound;  // per entry of the lists above: the held tensor it speaks of
  std::vector<Tensor> of_graph;                                      // what the forward returns
  std::shared_ptr<const void> structure;
  bool has_backward = false;
  JointTrace backward;
};

// Makes a specialization out of a trace.
class Specializer {
 public:
  Specializer(const BuildOptions& options, const Leaves& arguments, Reach reach, Program* program = nullptr)
      : options_(options), arguments_(arguments.tensors), reach_(reach), trace_(options.name, program), made_(std::make_shared<Specialization>()) {
    made_->guards = Guards::of(arguments);
  }

  // Runs the function.
  void trace(TraceFn fn, const Symbols::Sizes& sizes) {
    const autograd::Order start = autograd::next_order();
    std::vector<Tensor> results;
    Restorer restorer(trace_);
    trace_.add_arguments(arguments_, stand_ins_, reach_, sizes.of_tensors);
    {
      Trace::Scope scope(trace_);
      outcome_.structure = fn(stand_ins_, sizes.alone, results);
    }
    for (const Tensor& t : results) add_result(t);
    add_grad_writes();
    for (const Captured& c : trace_.captured()) {
      if (c.grad_of >= 0 && trace_.program() != nullptr) trace_.program()->refuse("the function reads the gradient of a tensor that it holds");
    }
    add_rebindings();
    split_ = JointSplit::at_end_of(trace_);
    std::vector<Tensor> wanted;
    for (size_t i = 0; i < results.size(); ++i) {
      if (outcome_.results[i].differentiable) wanted.push_back(results[i]);
    }
    if (trace_.program() != nullptr) trace_.program()->begin_backward();
    if (wanted.empty()) return;
    outcome_.has_backward = true;
    outcome_.backward = JointTrace::of(trace_, options_.name, stand_ins_, wanted, start);
  }

  // Traces the calls of a program again. False when they would not be the same.
  bool replay(const Program& program, const Outcome& recorded, const SymValues& values) {
    trace_.add_arguments(arguments_, stand_ins_, reach_);
    Program::Replay replay(program, trace_, values, stand_ins_);
    if (!replay.forward()) return false;
    outcome_ = recorded;
    for (Tensor& t : outcome_.of_graph) {
      t = replay.at(t);
      trace_.graph().results.push_back(t.defined() ? trace_.value_of(t) : Value{});
    }
    for (auto* held : {&outcome_.held_results, &outcome_.held_grad_leaves}) {
      for (const Tensor& t : *held) {
        if (t.defined()) trace_.value_of(t);
      }
    }
    split_ = JointSplit::at_end_of(trace_);
    if (!recorded.has_backward) return true;
    if (!replay.backward()) return false;
    for (Tensor& t : outcome_.backward.grads) t = replay.at(t);
    return true;
  }

  std::shared_ptr<const Specialization> build() {
    if (outcome_.has_backward) made_->partition = outcome_.backward.partition(split_, trace_, options_.partition);
    Graph forward = split_.forward(trace_.graph());
    if (outcome_.has_backward) made_->backward = outcome_.backward.cut(split_, trace_, forward, named("backward"));
    made_->structure = outcome_.structure;
    made_->results = outcome_.results;
    made_->grad_writes = outcome_.grad_writes;
    made_->rebindings = outcome_.rebindings;
    const auto point = [&](int32_t& index, const Tensor& held) {
      if (held.defined()) index = trace_.index_of_captured(held);
    };
    for (size_t i = 0; i < made_->results.size(); ++i) point(made_->results[i].index, outcome_.held_results[i]);
    for (size_t i = 0; i < made_->grad_writes.size(); ++i) point(made_->grad_writes[i].captured, outcome_.held_grad_leaves[i]);
    for (size_t i = 0; i < made_->rebindings.size(); ++i) point(made_->rebindings[i].captured, outcome_.held_rebound[i]);
    made_->captured = trace_.captured();
    for (const Captured& c : made_->captured) made_->held.push_back(HeldView::of(c.tensor, arguments_));
    made_->sources = {trace_.sources().begin(), trace_.sources().begin() + split_.sources};
    made_->forward = std::make_unique<Executable>(std::move(forward), named("forward"));
    if (!outcome_.has_backward) made_->partition = made_->forward->statistics().partition;
    return made_;
  }

  std::span<const Captured> captured() const { return trace_.captured(); }

  // The outcome for later replays: its tensors know nothing of autograd.
  Outcome recorded() const {
    Outcome copy = outcome_;
    for (auto* list : {&copy.of_graph, &copy.backward.grads}) {
      for (Tensor& t : *list) {
        if (t.defined() && trace_.is_traced(t)) t = t.alias();
      }
    }
    return copy;
  }

 private:
  BuildOptions named(const char* part) const {
    BuildOptions copy = options_;
    copy.name += std::string(" ") + part;
    return copy;
  }

  void add_result(const Tensor& t) {
    using Kind = ResultSource::Kind;
    outcome_.held_results.emplace_back();
    for (size_t i = 0; i < stand_ins_.size(); ++i) {
      if (t.is_same(stand_ins_[i])) {
        outcome_.results.push_back({Kind::argument, static_cast<int32_t>(i)});
        return;
      }
    }
    if (!trace_.is_traced(t)) {
      trace_.value_of(t);
      const autograd::Meta* meta = autograd::meta_of(t);
      if (meta != nullptr && meta->node) {
        throw CaptureError(24, fmt::format("'{}' returns a view {} of a tensor that it holds and that requires grad; return detach() of it, or pass "
                                           "the tensor as an argument", options_.name, describe(t)));
      }
      outcome_.results.push_back({Kind::captured, -1});
      outcome_.held_results.back() = t;
      return;
    }
    const int32_t index = add_to_graph(t);
    outcome_.results.push_back({Kind::graph, index, made_->guards.grad_enabled && requires_grad(t)});
  }

  int32_t add_to_graph(const Tensor& t) {
    trace_.graph().results.push_back(trace_.value_of(t));
    outcome_.of_graph.push_back(t);
    return static_cast<int32_t>(outcome_.of_graph.size()) - 1;
  }

  void add_grad_writes() {
    const auto add = [&](int32_t argument, const Tensor& held, const Tensor& grad) {
      outcome_.grad_writes.push_back({.argument = argument, .result = grad.defined() ? add_to_graph(grad) : -1});
      outcome_.held_grad_leaves.push_back(held);
    };
    for (size_t i = 0; i < stand_ins_.size(); ++i) {
      const Tensor grad = grad_of(stand_ins_[i]);
      const auto is_it = [&](const Tensor& t) { return t.is_same(stand_ins_[i]); };
      const auto here = stand_ins_.begin() + static_cast<std::ptrdiff_t>(i);
      if (grad.defined() && std::none_of(stand_ins_.begin(), here, is_it)) add(static_cast<int32_t>(i), {}, grad);
    }
    for (size_t i = 0; i < trace_.captured().size(); ++i) {
      const Captured c = trace_.captured()[i];
      if (autograd::meta_of(c.tensor) != nullptr && !Restorer::is_same_grad(c)) add(-1, c.tensor, grad_of(c.tensor));
    }
  }

  void add_rebindings() {
    for (const Rebound& r : trace_.rebound()) {
      const auto argument = std::find_if(stand_ins_.begin(), stand_ins_.end(), [&](const Tensor& t) { return t.is_same(r.tensor); });
      const bool is_argument = argument != stand_ins_.end();
      if (!is_argument && trace_.index_of_captured(r.tensor) < 0) continue;  // lives inside only
      const auto index = static_cast<int32_t>(argument - stand_ins_.begin());
      outcome_.rebindings.push_back({.argument = is_argument ? index : -1, .result = add_to_graph(r.tensor)});
      outcome_.held_rebound.push_back(is_argument ? Tensor{} : r.tensor);
    }
  }

  const BuildOptions options_;
  const std::vector<Tensor> arguments_;
  const Reach reach_;
  Trace trace_;
  std::shared_ptr<Specialization> made_;
  std::vector<Tensor> stand_ins_;
  Outcome outcome_;
  JointSplit split_;
};

int64_t byte_offset(const Tensor& t) { return t.offset() * itemsize(t.dtype()); }

// fn(reach), with the least that is enough.
template <class Fn>
auto with_reach(Fn fn) {
  try {
    return fn(Reach::arguments);
  } catch (const HeldReachesFurther&) {
    return fn(Reach::storages);
  }
}

bool has_place(const Captured& held, const HeldView& was) {
  const Tensor& t = held.tensor;
  return t.offset() == was.offset && t.extents() == was.sizes && t.strides() == was.strides && requires_grad(t) == held.requires_grad;
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

HeldView HeldView::of(const Tensor& t, std::span<const Tensor> arguments) {
  HeldView view{t.storage().get(), t.offset(), t.extents(), t.strides(), -1, 0};
  const auto shares = [&](const Tensor& argument) { return argument.storage().get() == view.storage; };
  const auto argument = std::find_if(arguments.begin(), arguments.end(), shares);
  if (argument == arguments.end()) return view;
  view.argument = static_cast<int32_t>(argument - arguments.begin());
  view.argument_bytes = byte_offset(*argument) - byte_offset(t);
  return view;
}

Build specialize(const Leaves& arguments, TraceFn trace, const BuildOptions& options, double* trace_ms) {
  const auto begin = std::chrono::steady_clock::now();
  const auto specializer = with_reach([&](Reach reach) {
    auto made = std::make_shared<Specializer>(options, arguments, reach);
    SymGraph none;
    made->trace(trace, Symbols().sizes_of(arguments, none));
    return made;
  });
  *trace_ms = milliseconds_since(begin);
  return [specializer] { return specializer->build(); };
}

// ---- a family ---------------------------------------------------------------------------------------------------------

struct Family::Recording {
  Program program;
  Outcome outcome;
  std::vector<Captured> captured;
  std::vector<HeldView> held;  // per captured tensor
};

Family::Family(Symbols symbols, const Leaves& arguments) : symbols_(std::move(symbols)), guards_(Guards::of(arguments)) {}
Family::~Family() = default;

std::shared_ptr<Family> Family::trace(const Symbols& symbols, const Leaves& arguments, TraceFn fn, const BuildOptions& options, double* trace_ms,
                                      Build& first) {
  const auto begin = std::chrono::steady_clock::now();
  auto made = std::shared_ptr<Family>(new Family(symbols, arguments));
  const auto specializer = with_reach([&](Reach reach) {
    made->recording_ = std::make_unique<Recording>();
    Program& program = made->recording_->program;
    auto traced = std::make_shared<Specializer>(options, arguments, reach, &program);
    traced->trace(fn, made->symbols_.sizes_of(arguments, program.symbols()));
    return traced;
  });
  Program& program = made->recording_->program;
  if (!program.refusal().empty()) throw NotSymbolic(program.refusal());
  program.note_guards("the function");
  made->recording_->outcome = specializer->recorded();
  made->recording_->captured = {specializer->captured().begin(), specializer->captured().end()};
  for (const Captured& c : specializer->captured()) made->recording_->held.push_back(HeldView::of(c.tensor, arguments.tensors));
  *trace_ms = milliseconds_since(begin);
  first = [specializer, made] { return specializer->build(); };
  return made;
}

bool Family::takes(const Leaves& arguments) const {
  return guards_.hold(arguments, [&](int tensor, int dim) { return symbols_.index_of(tensor, dim) >= 0; }) && symbols_.in_range(arguments) &&
         held_state_holds() && SymValues(recording_->program.symbols(), symbols_.values_in(arguments)).guards_hold();
}

// The calls of the program are about held tensors as they were, and set gradients where there were none or some.
bool Family::held_state_holds() const {
  const Recording& was = *recording_;
  for (size_t i = 0; i < was.captured.size(); ++i) {
    if (!has_place(was.captured[i], was.held[i])) return false;
  }
  for (const Tensor& leaf : was.outcome.held_grad_leaves) {
    if (!leaf.defined()) continue;
    const auto c = std::find_if(was.captured.begin(), was.captured.end(), [&](const Captured& held) { return held.tensor.is_same(leaf); });
    if (grad_of(leaf).defined() != c->grad_before.defined()) return false;
  }
  return true;
}

Build Family::member(const Leaves& arguments, const BuildOptions& options, double* trace_ms) const {
  const auto begin = std::chrono::steady_clock::now();
  const SymValues values(recording_->program.symbols(), symbols_.values_in(arguments));
  const auto specializer = with_reach([&](Reach reach) {
    auto made = std::make_shared<Specializer>(options, arguments, reach);
    return made->replay(recording_->program, recording_->outcome, values) ? made : nullptr;
  });
  if (!specializer) return nullptr;
  *trace_ms = milliseconds_since(begin);
  return [specializer] { return specializer->build(); };
}

std::string Family::what_fixes(size_t symbol) const { return recording_->program.what_fixes(static_cast<int64_t>(symbol)); }

std::string Family::to_string() const {
  std::string text = symbols_.to_string();
  const SymGraph& graph = recording_->program.symbols();
  for (size_t i = 0; i < graph.guards().size(); ++i) {
    const SymGraph::Guard& g = graph.guards()[i];
    const bool is_truth = is_comparison(graph.node(g.node).op);
    text += fmt::format("  guard {} {} ({})\n", graph.to_string(g.node), is_truth ? (g.answer != 0 ? "holds" : "does not hold") : fmt::format("is {}", g.answer),
                        recording_->program.place_of_guard(i));
  }
  return text;
}

bool Specialization::captured_state_holds(const Leaves& arguments) const {
  for (size_t i = 0; i < captured.size(); ++i) {
    const HeldView& was = held[i];
    const bool moves = std::any_of(rebindings.begin(), rebindings.end(), [&](const Rebinding& r) { return r.captured == static_cast<int32_t>(i); });
    if (!has_place(captured[i], was) || (!moves && captured[i].tensor.storage().get() != was.storage)) return false;
  }
  for (const Trace::Source& source : sources) {
    if (source.kind != Trace::Source::Kind::captured) continue;
    const Captured& c = captured[static_cast<size_t>(source.index)];
    if (c.grad_of >= 0) {
      const Tensor now = grad_of(captured[static_cast<size_t>(c.grad_of)].tensor);
      if (!now.defined() || now.dtype() != c.tensor.dtype() || !(now.extents() == c.tensor.extents()) || !(now.strides() == c.tensor.strides()) ||
          now.offset() != c.tensor.offset())
        return false;
    }
    for (const Tensor& t : arguments.tensors) {
      if (t.storage().get() == c.tensor.storage().get()) return false;
    }
  }
  for (const GradWrite& w : grad_writes) {
    if (w.captured < 0) continue;
    const Captured& c = captured[static_cast<size_t>(w.captured)];
    if (grad_of(c.tensor).defined() != c.grad_before.defined()) return false;
  }
  // A captured tensor that stood on the memory of an argument must do so again, at the same place.
  for (size_t i = 0; i < captured.size(); ++i) {
    if (held[i].argument < 0) continue;
    const Tensor &t = captured[i].tensor, &argument = arguments.tensors[static_cast<size_t>(held[i].argument)];
    if (argument.storage().get() != t.storage().get() || byte_offset(argument) - byte_offset(t) != held[i].argument_bytes) return false;
  }
  return true;
}

std::vector<GivenMemory> Specialization::memory_of(const std::vector<Trace::Source>& list, std::span<const Tensor> arguments,
                                                   std::span<const Tensor> later) const {
  using Kind = Trace::Source::Kind;
  std::vector<GivenMemory> given;
  given.reserve(list.size());
  for (const Trace::Source& source : list) {
    const auto i = static_cast<size_t>(source.index);
    if (source.kind == Kind::argument) {
      const Tensor& t = arguments[i];
      given.push_back({t.storage(), t.offset() * itemsize(t.dtype()) - source.lead});
    } else if (source.kind == Kind::later) {
      given.push_back({later[i].storage(), later[i].offset() * itemsize(later[i].dtype())});
    } else {
      const Captured& c = captured[i];
      given.push_back({(c.grad_of >= 0 ? grad_of(captured[static_cast<size_t>(c.grad_of)].tensor) : c.tensor).storage(), 0});
    }
  }
  return given;
}

}  // namespace tutti::graph
