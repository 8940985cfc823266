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

class Specializer {
 public:
  Specializer(const std::string& name, const Leaves& arguments) : name_(name), arguments_(arguments), trace_(name), made_(std::make_shared<Specialization>()) {
    made_->guards = Guards::of(arguments);
  }

  std::shared_ptr<const Specialization> run(FunctionRef<std::shared_ptr<const void>(std::span<const Tensor>, std::vector<Tensor>&)> fn,
                                            const BuildOptions& options, double* trace_ms) {
    const auto named = [&](const char* part) {
      BuildOptions copy = options;
      copy.name += std::string(" ") + part;
      return copy;
    };
    const auto begin = std::chrono::steady_clock::now();
    const autograd::Order start = autograd::next_order();
    std::vector<Tensor> results;
    {
      Restorer restorer(trace_);
      trace_.add_arguments(arguments_.tensors, stand_ins_);
      {
        Trace::Scope scope(trace_);
        made_->structure = fn(stand_ins_, results);
      }
      for (const Tensor& t : results) add_result(t);
      add_grad_writes();
      add_rebindings();
      split_ = JointSplit::at_end_of(trace_);
      std::vector<Tensor> wanted;
      for (size_t i = 0; i < results.size(); ++i) {
        if (made_->results[i].differentiable) wanted.push_back(results[i]);
      }
      if (!wanted.empty()) joint_ = std::make_unique<JointTrace>(trace_, name_, stand_ins_, wanted, start);
    }
    *trace_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();

    made_->captured = trace_.captured();
    for (const Captured& c : made_->captured)
      made_->held.push_back({c.tensor.storage().get(), c.tensor.offset(), c.tensor.extents(), c.tensor.strides()});
    made_->sources = {trace_.sources().begin(), trace_.sources().begin() + split_.sources};
    if (joint_) made_->partition = joint_->partition(split_, trace_, options.partition);
    Graph forward = split_.forward(trace_.graph());
    if (joint_) made_->backward = joint_->finish(split_, trace_, forward, named("backward"));
    made_->forward = std::make_unique<Executable>(std::move(forward), named("forward"));
    if (!joint_) made_->partition = made_->forward->statistics().partition;
    return made_;
  }

 private:
  void add_result(const Tensor& t) {
    using Kind = ResultSource::Kind;
    for (size_t i = 0; i < stand_ins_.size(); ++i) {
      if (t.is_same(stand_ins_[i])) {
        made_->results.push_back({Kind::argument, static_cast<int32_t>(i)});
        return;
      }
    }
    const Value v = trace_.value_of(t);
    if (!trace_.is_traced(t)) {
      const autograd::Meta* meta = autograd::meta_of(t);
      if (meta != nullptr && meta->node) {
        throw CaptureError(24, fmt::format("'{}' returns a view {} of a tensor that it holds and that requires grad; return detach() of it, or pass "
                                           "the tensor as an argument", name_, describe(t)));
      }
      const auto& captured = trace_.captured();
      const auto it = std::find_if(captured.begin(), captured.end(), [&](const Captured& c) { return c.tensor.is_same(t); });
      made_->results.push_back({Kind::captured, static_cast<int32_t>(it - captured.begin())});
      return;
    }
    made_->results.push_back({Kind::graph, add_graph_result(v), made_->guards.grad_enabled && requires_grad(t)});
  }

  int32_t add_graph_result(const Value& v) {
    trace_.graph().results.push_back(v);
    return static_cast<int32_t>(trace_.graph().results.size()) - 1;
  }

  void add_grad_writes() {
    const auto result_of = [&](const Tensor& grad) { return grad.defined() ? add_graph_result(trace_.value_of(grad)) : -1; };
    for (size_t i = 0; i < stand_ins_.size(); ++i) {
      const Tensor grad = grad_of(stand_ins_[i]);
      if (grad.defined()) made_->grad_writes.push_back({.argument = static_cast<int32_t>(i), .result = result_of(grad)});
    }
    for (size_t i = 0; i < trace_.captured().size(); ++i) {
      const Captured c = trace_.captured()[i];
      if (autograd::meta_of(c.tensor) == nullptr || Restorer::is_same_grad(c)) continue;
      made_->grad_writes.push_back({.captured = static_cast<int32_t>(i), .result = result_of(grad_of(c.tensor))});
    }
  }

  void add_rebindings() {
    for (const Rebound& r : trace_.rebound()) {
      const auto is_it = [&](const Tensor& t) { return t.is_same(r.tensor); };
      const auto argument = std::find_if(stand_ins_.begin(), stand_ins_.end(), is_it);
      const auto held = std::find_if(trace_.captured().begin(), trace_.captured().end(), [&](const Captured& c) { return is_it(c.tensor); });
      if (argument == stand_ins_.end() && held == trace_.captured().end()) continue;  // lives inside only
      const int32_t result = add_graph_result(trace_.value_of(r.tensor));
      if (argument != stand_ins_.end()) made_->rebindings.push_back({.argument = static_cast<int32_t>(argument - stand_ins_.begin()), .result = result});
      else made_->rebindings.push_back({.captured = static_cast<int32_t>(held - trace_.captured().begin()), .result = result});
    }
  }

  const std::string& name_;
  const Leaves& arguments_;
  Trace trace_;
  std::shared_ptr<Specialization> made_;
  std::vector<Tensor> stand_ins_;
  JointSplit split_;
  std::unique_ptr<JointTrace> joint_;
};

}  // namespace

std::shared_ptr<const Specialization> specialize(const Leaves& arguments,
                                                 FunctionRef<std::shared_ptr<const void>(std::span<const Tensor>, std::vector<Tensor>&)> trace,
                                                 const BuildOptions& options, double* trace_ms) {
  return Specializer(options.name, arguments).run(trace, options, trace_ms);
}

bool Specialization::captured_state_holds(const Leaves& arguments) const {
  for (size_t i = 0; i < captured.size(); ++i) {
    const Tensor& t = captured[i].tensor;
    const HeldView& was = held[i];
    const bool moves = std::any_of(rebindings.begin(), rebindings.end(), [&](const Rebinding& r) { return r.captured == static_cast<int32_t>(i); });
    if (t.offset() != was.offset || !(t.extents() == was.sizes) || !(t.strides() == was.strides) || (!moves && t.storage().get() != was.storage))
      return false;
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
  // A captured tensor that stood on the memory of an argument must do so again.
  const auto has_source = [&](const Tensor& t) {
    const auto is_its = [&](const Trace::Source& s) {
      return s.kind == Trace::Source::Kind::captured && captured[static_cast<size_t>(s.index)].tensor.storage().get() == t.storage().get();
    };
    return std::any_of(sources.begin(), sources.end(), is_its) ||
           (backward && std::any_of(backward->sources.begin(), backward->sources.end(), is_its));
  };
  for (const Captured& c : captured) {
    if (has_source(c.tensor)) continue;
    const bool shared = std::any_of(arguments.tensors.begin(), arguments.tensors.end(), [&](const Tensor& t) {
      return t.storage().get() == c.tensor.storage().get();
    });
    if (!shared) return false;
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
