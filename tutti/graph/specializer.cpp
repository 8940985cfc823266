#include "tutti/graph/specializer.h"

#include <algorithm>

#include "tutti/autograd/backward.h"
#include "tutti/tensor/handle_watch.h"
#include "tutti/tensor/rebind.h"
#include "tutti/tensor/wrapper.h"

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

}  // namespace

Specializer::Specializer(const BuildOptions& options, const Leaves& arguments, Reach reach, Program* program)
    : options_(options),
      arguments_(arguments.tensors),
      argument_keys_(arguments.keys),
      reach_(reach),
      trace_(options.name, program),
      made_(std::make_shared<Specialization>()) {
  made_->guards = Guards::of(arguments);
}

void Specializer::trace(TraceFn fn, const Symbols::Sizes& sizes) {
  const autograd::Order start = autograd::next_order();
  const autograd::NoCapturedScope stand_ins_are_nobodys;
  std::optional<HandleNotes> notes;  // so that the next run knows of each tensor that somebody may be interested in
  if (HandleNotes::current() == nullptr) notes.emplace();
  std::vector<Tensor> results;
  Restorer restorer(trace_);
  trace_.add_arguments(arguments_, stand_ins_, reach_, sizes.of_tensors);
  const std::vector<RandomKey> keys = trace_.keys().add_arguments(argument_keys_);
  {
    Trace::Scope scope(trace_);
    try {
      outcome_.structure = fn({stand_ins_, sizes.alone, keys}, results);
      if (trace_.stopped_at_read()) {
        throw CaptureError(
            12, fmt::format("'{}' catches what stops its trace at a read; catch what you can handle, by its type",
                            options_.name));
      }
    } catch (const ReadReached&) {
    }
  }
  outcome_.mode = trace_.mode_of_wrappers();
  if (trace_.stopped_at_read()) {
    note_grads();
    note_reads();
    split_ = JointSplit::at_end_of(trace_);
    return;
  }
  for (const Tensor& t : results) add_result(t);
  refuse_copies_of(results);
  add_grad_writes();
  for (const Captured& c : trace_.captured()) {
    if (c.grad_of >= 0 && trace_.program() != nullptr)
      trace_.program()->refuse("the function reads the gradient of a tensor that it holds");
  }
  add_rebindings();
  split_ = JointSplit::at_end_of(trace_);
  std::vector<Tensor> wanted;
  for (size_t i = 0; i < results.size(); ++i) {
    if (outcome_.results[i].differentiable) wanted.push_back(results[i]);
  }
  if (trace_.program() != nullptr) trace_.program()->begin_backward();
  for (const Captured& c : trace_.captured()) {
    if (wrapper_of(c.tensor) != nullptr) outcome_.held_wrappers.push_back(c.tensor);
  }
  if (!wanted.empty()) {
    outcome_.has_backward = true;
    trace_.end_forward();
    outcome_.backward = JointTrace::of(trace_, options_.name, stand_ins_, arguments_, wanted, start);
  }
  outcome_.mode = trace_.mode_of_wrappers();
  note_reads();
}

bool Specializer::replay(const Program& program, const Outcome& recorded, const SymValues& values) {
  const autograd::NoCapturedScope stand_ins_are_nobodys;
  trace_.keys().set_slots(recorded.keys);
  trace_.add_arguments(arguments_, stand_ins_, reach_);
  std::vector<Tensor> insides;
  for (const Tensor& t : stand_ins_) insides.push_back(inside_of(t));
  Program::Replay replay(program, trace_, values, insides);
  if (!replay.forward()) return false;
  outcome_ = recorded;
  for (Tensor& t : outcome_.of_graph) {
    t = replay.at(t);
    trace_.graph().results.push_back(t.defined() ? trace_.value_of(t) : Value{});
  }
  // Forms are those of the recorded sizes.
  const auto fit = [](std::shared_ptr<const WrapperForm>& form, const Tensor& inside) {
    if (form != nullptr && inside.defined()) form = form->for_inside(inside.extents());
  };
  std::vector<Tensor> differentiable;
  for (ResultSource& r : outcome_.results) {
    if (r.kind != ResultSource::Kind::graph) continue;
    const Tensor& inside = outcome_.of_graph[static_cast<size_t>(r.index)];
    fit(r.form, inside);
    if (r.differentiable) differentiable.push_back(inside);
  }
  for (GradWrite& w : outcome_.grad_writes) {
    if (w.result >= 0) fit(w.form, outcome_.of_graph[static_cast<size_t>(w.result)]);
  }
  for (const Tensor& wrapper : outcome_.held_wrappers) trace_.meet(wrapper, "the function");
  for (auto* held : {&outcome_.held_results, &outcome_.held_grad_leaves}) {
    for (const Tensor& t : *held) {
      if (t.defined()) trace_.value_of(inside_of(t));
    }
  }
  split_ = JointSplit::at_end_of(trace_);
  if (!recorded.has_backward) return true;
  if (!replay.backward()) return false;
  for (Tensor& t : outcome_.backward.grads) t = replay.at(t);
  for (size_t i = 0; i < outcome_.backward.grads.size(); ++i)
    fit(outcome_.backward.grad_forms[i], outcome_.backward.grads[i]);
  for (size_t k = 0; k < differentiable.size(); ++k) fit(outcome_.backward.cotangent_forms[k], differentiable[k]);
  return true;
}

std::shared_ptr<const Specialization> Specializer::build() {
  if (outcome_.has_backward) made_->partition = outcome_.backward.partition(split_, trace_, options_.partition);
  Graph forward = split_.forward(trace_.graph());
  if (outcome_.has_backward) made_->backward = outcome_.backward.cut(split_, trace_, forward, named("backward"));
  made_->keys = trace_.keys().slots();
  made_->segments = trace_.segments();
  if (trace_.stopped_at_read()) {
    made_->continuations = std::make_shared<Continuations>();
    made_->read_at = user_line(trace_.last_read());
  }
  made_->structure = outcome_.structure;
  made_->results = outcome_.results;
  made_->grad_writes = outcome_.grad_writes;
  made_->rebindings = outcome_.rebindings;
  const auto point = [&](int32_t& index, const Tensor& held) {
    if (held.defined()) index = trace_.index_of_captured(held);
  };
  for (size_t i = 0; i < made_->results.size(); ++i) point(made_->results[i].index, outcome_.held_results[i]);
  for (size_t i = 0; i < made_->grad_writes.size(); ++i)
    point(made_->grad_writes[i].captured, outcome_.held_grad_leaves[i]);
  for (size_t i = 0; i < made_->rebindings.size(); ++i) point(made_->rebindings[i].captured, outcome_.held_rebound[i]);
  made_->captured = trace_.captured();
  made_->mode = outcome_.mode;
  for (const Captured& c : made_->captured) made_->held.push_back(HeldView::of(c.tensor, arguments_));
  for (const Rebinding& r : made_->rebindings) {
    if (r.captured >= 0) made_->held[static_cast<size_t>(r.captured)].moves = true;
  }
  made_->sources = {trace_.sources().begin(), trace_.sources().begin() + split_.sources};
  made_->forward = std::make_unique<Executable>(std::move(forward), named("forward"));
  if (!outcome_.has_backward) made_->partition = made_->forward->statistics().partition;
  return made_;
}

Outcome Specializer::recorded() {
  Outcome copy = outcome_;
  copy.keys = trace_.keys().slots();
  for (auto* list : {&copy.of_graph, &copy.backward.grads}) {
    for (Tensor& t : *list) {
      if (t.defined() && trace_.is_traced(t)) t = t.alias();
    }
  }
  return copy;
}

BuildOptions Specializer::named(const char* part) const {
  BuildOptions copy = options_;
  if (!trace_.segments().empty())
    copy.name += fmt::format(" segment {}", trace_.segments().size() - trace_.stopped_at_read());
  copy.name += std::string(" ") + part;
  return copy;
}

void Specializer::add_result(const Tensor& t) {
  using Kind = ResultSource::Kind;
  outcome_.held_results.emplace_back();
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    if (t.is_same(stand_ins_[i])) {
      outcome_.results.push_back({Kind::argument, static_cast<int32_t>(i)});
      return;
    }
  }
  if (!trace_.is_traced(inside_of(t))) {
    if (wrapper_of(t) != nullptr) trace_.meet(t, "the function");
    trace_.value_of(inside_of(t));
    const autograd::Meta* meta = autograd::meta_of(t);
    if (meta != nullptr && meta->node) {
      throw CaptureError(
          24,
          fmt::format(
              "'{}' returns a view {} of a tensor that it holds and that requires grad; return detach() of it, or pass "
              "the tensor as an argument",
              options_.name, describe(t)));
    }
    outcome_.results.push_back({Kind::captured, -1});
    outcome_.held_results.back() = t;
    return;
  }
  const int32_t index = add_to_graph(inside_of(t));
  // What a backward of the function's own used up comes out detached: another one would be an error either way.
  outcome_.results.push_back({Kind::graph, index,
                              made_->guards.grad_enabled && requires_grad(t) && !autograd::is_used_up(t), form_of(t),
                              copied_argument(t)});
}

// The argument of which a result is a view that is a copy, or -1. What else may be written after the call is refused:
// its versions are not known here.
int32_t Specializer::copied_argument(const Tensor& result) const {
  const WrapperExtension* wrapper = wrapper_of(result);
  if (wrapper == nullptr || !wrapper->is_copy()) return -1;
  const auto shows = [&](const Tensor& t) { return wrapper_of(t) != nullptr && wrapper->is_copy_of(*wrapper_of(t)); };
  const auto argument = std::find_if(stand_ins_.begin(), stand_ins_.end(), shows);
  if (argument != stand_ins_.end()) return static_cast<int32_t>(argument - stand_ins_.begin());
  const bool is_held = std::any_of(trace_.captured().begin(), trace_.captured().end(),
                                   [&](const Captured& c) { return shows(c.tensor); });
  if (is_held) {
    throw CaptureError(40, fmt::format("'{}' returns the view {} of a tensor that it holds, and the view is a copy, "
                                       "because its elements had to be moved; return clone() of it, "
                                       "or pass the tensor as an argument",
                                       options_.name, describe(result)));
  }
  return -1;
}

// The same of two results, one of which is a view of the other.
void Specializer::refuse_copies_of(std::span<const Tensor> results) const {
  for (const Tensor& copy : results) {
    const WrapperExtension* wrapper = wrapper_of(copy);
    if (wrapper == nullptr || !wrapper->is_copy()) continue;
    for (const Tensor& t : results) {
      const WrapperExtension* shown = wrapper_of(t);
      const bool is_made_here =
          shown != nullptr && !shown->is_copy() &&
          std::none_of(stand_ins_.begin(), stand_ins_.end(), [&](const Tensor& s) { return s.is_same(t); });
      if (!is_made_here || !wrapper->is_copy_of(*shown) || copied_argument(copy) >= 0) continue;
      throw CaptureError(40, fmt::format("'{}' returns {} and the view {} of it, and the view is a copy, because its "
                                         "elements had to be moved; return clone() of the view",
                                         options_.name, describe(t), describe(copy)));
    }
  }
}

int32_t Specializer::add_to_graph(const Tensor& t) {
  trace_.graph().results.push_back(trace_.value_of(t));
  outcome_.of_graph.push_back(t);
  return static_cast<int32_t>(outcome_.of_graph.size()) - 1;
}

void Specializer::add_grad_writes() {
  const auto add = [&](int32_t argument, const Tensor& held, const Tensor& grad) {
    outcome_.grad_writes.push_back(
        {.argument = argument, .result = grad.defined() ? add_to_graph(inside_of(grad)) : -1, .form = form_of(grad)});
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

// A segment sets no gradients, since the end of the call does. But it was traced for leaves that had one, or none.
void Specializer::note_grads() {
  for (const Captured& c : trace_.captured()) {
    if (autograd::meta_of(c.tensor) == nullptr || Restorer::is_same_grad(c)) continue;
    outcome_.grad_writes.push_back({});
    outcome_.held_grad_leaves.push_back(c.tensor);
  }
}

// What the function does, in numbers that do not depend on which run of it this is.
void Specializer::note_reads() {
  reads_ = HeldReads::of(trace_);
  const auto add = [&](int64_t kind, int64_t index, const Tensor& held, int64_t result) {
    const Value value = result >= 0 ? trace_.graph().results[static_cast<size_t>(result)] : Value{};
    reads_.outcome.insert(reads_.outcome.end(), {kind, index, held.defined() ? trace_.index_of_captured(held) : -1,
                                                 value.buffer, value.version});
  };
  for (size_t i = 0; i < outcome_.results.size(); ++i) {
    const ResultSource& r = outcome_.results[i];
    const bool is_made = r.kind == ResultSource::Kind::graph;
    add(static_cast<int64_t>(r.kind), is_made ? r.differentiable : r.index, outcome_.held_results[i],
        is_made ? r.index : -1);
  }
  for (size_t i = 0; i < outcome_.grad_writes.size(); ++i)
    add(-1, outcome_.grad_writes[i].argument, outcome_.held_grad_leaves[i], outcome_.grad_writes[i].result);
  for (size_t i = 0; i < outcome_.rebindings.size(); ++i)
    add(-2, outcome_.rebindings[i].argument, outcome_.held_rebound[i], outcome_.rebindings[i].result);
}

void Specializer::add_rebindings() {
  for (const Rebound& r : trace_.rebound()) {
    const auto argument =
        std::find_if(stand_ins_.begin(), stand_ins_.end(), [&](const Tensor& t) { return t.is_same(r.tensor); });
    const bool is_argument = argument != stand_ins_.end();
    if (!is_argument && trace_.index_of_captured(r.tensor) < 0) continue;  // lives inside only
    const auto index = static_cast<int32_t>(argument - stand_ins_.begin());
    outcome_.rebindings.push_back({.argument = is_argument ? index : -1, .result = add_to_graph(r.tensor)});
    outcome_.held_rebound.push_back(is_argument ? Tensor{} : r.tensor);
  }
}

Build specialize(const Leaves& arguments, TraceFn trace, const BuildOptions& options, double* trace_ms,
                 const Progress* progress) {
  const auto begin = std::chrono::steady_clock::now();
  const auto specializer = with_reach([&](Reach reach) {
    auto made = std::make_shared<Specializer>(options, arguments, reach);
    if (progress != nullptr) made->allow_reads(*progress);
    SymGraph none;
    made->trace(trace, Symbols().sizes_of(arguments, none));
    made->watched_by(std::make_shared<HeldWatch>(made->reads()));
    return made;
  });
  *trace_ms = milliseconds_since(begin);
  return [specializer] { return specializer->build(); };
}

std::optional<HeldReads> reads_again(const Leaves& arguments, TraceFn trace, const BuildOptions& options,
                                     const std::optional<Symbols>& symbols, const Progress* progress) {
  try {
    return with_reach([&](Reach reach) {
      Program program;
      SymGraph none;
      Specializer looks(options, arguments, reach, symbols ? &program : nullptr);
      if (progress != nullptr) looks.allow_reads(*progress);
      looks.trace(trace,
                  symbols ? symbols->sizes_of(arguments, program.symbols()) : Symbols().sizes_of(arguments, none));
      return std::optional(looks.reads());
    });
  } catch (const NotSymbolic&) {
    return std::nullopt;
  }
}

}  // namespace tutti::graph
