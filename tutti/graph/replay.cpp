// Calls of a specialization, and the autograd node of what they return.
#include <algorithm>
#include <map>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/graph/joint.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/keys_again.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/rebind.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {
namespace {

// Runs the compiled backward in the place of the nodes that an eager forward would have recorded.
struct CompiledNode final : autograd::Node {
  CompiledNode(std::shared_ptr<const Specialization> specialization, std::span<const Tensor> arguments_,
               std::vector<Tensor> saved_, Progress progress, Rerun rerun_)
      : spec(std::move(specialization)),
        arguments(arguments_.begin(), arguments_.end()),
        saved(std::move(saved_)),
        carried(std::move(progress.carried)),
        keys(std::move(progress.keys)),
        rerun(std::move(rerun_)) {
    for (const StorageRef& s : storages()) versions.push_back(s->version());
    if (rerun != nullptr) versions_read = read_versions();
  }

  const char* name() const override { return "compiled function"; }

  bool consumes(int output) const override {
    const std::vector<bool>& consumes = spec->backward->consumes;
    return !consumes.empty() && consumes[static_cast<size_t>(output)];
  }
  bool take(int output, std::span<const Tensor> cotangents, size_t given) override {
    const JointBackward& backward = *spec->backward;
    const auto k = static_cast<size_t>(output);
    if (is_grad_enabled() || !backward.adds_further[k] || (given == 0 && cotangents.size() == 1)) return false;
    if (std::any_of(cotangents.begin(), cotangents.end(),
                    [&](const Tensor& g) { return g.dtype() != backward.cotangent_dtypes[k]; }))
      return false;
    Taken& of_output = taken[output];
    for (size_t i = 0; i < given; ++i)
      of_output.in_front = of_output.in_front.defined() ? add(of_output.in_front, cotangents[i]) : cotangents[i];
    of_output.behind.assign(cotangents.begin() + static_cast<std::ptrdiff_t>(given), cotangents.end());
    return true;
  }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    TUTTI_CHECK(!released,
                "backward of a compiled function: it ran before and what it needs is gone; pass retain_graph = true to "
                "the first "
                "backward");
    const std::vector<StorageRef> now = storages();
    for (size_t i = 0; i < now.size(); ++i) {
      TUTTI_CHECK(now[i]->version() == versions[i],
                  "backward of a compiled function: an argument, a result or a tensor that it holds was changed in "
                  "place after the forward (version {} then, {} now); write to a clone() instead",
                  versions[i], now[i]->version());
    }
    if (is_grad_enabled()) {
      run_recorded(grads);
      return;
    }
    const JointBackward& backward = *spec->backward;
    const std::map<int, Taken> several = std::exchange(taken, {});
    std::vector<Tensor> first(grads.begin(), grads.end()), further;
    std::vector<Arrived> arrived;
    for (const Tensor& g : grads) arrived.push_back({.in_front = false, .behind = g.defined() ? 1 : 0});
    for (const auto& [output, of_output] : several) {
      const auto k = static_cast<size_t>(output);
      const WrapperForm* form = backward.cotangent_forms[k].get();
      const auto inside = [&](const Tensor& g) { return form == nullptr ? g : form->elements_of(g); };
      arrived[k] = {.in_front = of_output.in_front.defined(), .behind = static_cast<int32_t>(of_output.behind.size())};
      if (arrived[k].in_front) further.push_back(inside(of_output.in_front));
      for (size_t i = 0; i < of_output.behind.size(); ++i) {
        if (i == 0) first[k] = of_output.behind[i];
        else further.push_back(inside(of_output.behind[i]));
      }
    }
    const bool is_partial =
        std::find_if(arrived.begin(), arrived.end(), [](const Arrived& a) { return a != Arrived{}; }) != arrived.end();
    const PartialBackwards::Partial* partial = is_partial ? &backward.partial->of(arrived) : nullptr;
    std::vector<Tensor> later;
    const auto add_later = [&](const Tensor& g) {
      before_host_read(g);
      later.push_back(to_contiguous(g));
    };
    for (size_t k = 0; k < grads.size(); ++k) {
      const DType dtype = backward.cotangent_dtypes[k];
      const bool is_defined = first[k].defined(), is_read = is_defined || partial->needs_zeros[k];
      const WrapperForm* form = backward.cotangent_forms[k].get();
      add_later(!is_defined       ? full(is_read ? to_shape(sizes[k]) : Shape{0}, 0.0, dtype)
                : form == nullptr ? cast(first[k], dtype)
                                  : form->elements_of(first[k]));
    }
    later.insert(later.end(), saved.begin(), saved.end());
    std::vector<Trace::Source> sources = backward.sources;
    for (const Tensor& g : further) {
      sources.push_back({Trace::Source::Kind::later, static_cast<int32_t>(later.size()), 0, 0});
      add_later(g);
    }
    const Executable& executable = is_partial ? *partial->executable : *backward.executable;
    const std::vector<Tensor> results = executable.run(spec->memory_of(sources, arguments, later, carried), {}, keys);
    for (size_t i = 0; i < results.size(); ++i) input_grads[i] = around(backward.grad_forms[i], results[i]);
  }

  // Gradients of gradients: the function runs once more, op by op, and its nodes are those of an eager call.
  void run_recorded(std::span<const Tensor> grads) const {
    TUTTI_CHECK(
        rerun != nullptr,
        "backward of a compiled function: gradients of gradients (create_graph) are not recorded through one that "
        "writes memory "
        "or sets gradients, because it would have to run again; call the function itself where they are wanted");
    TUTTI_CHECK(read_versions() == versions_read,
                "backward of a compiled function: gradients of gradients (create_graph) run the function again, and an "
                "argument "
                "or a tensor that it holds was changed in place after the forward; write to a clone() instead");
    refuse_replaced(spec->watch->is_lost());
    const autograd::Order start = autograd::next_order();
    std::vector<Tensor> all, outputs, cotangents;
    {
      const KeysAgain same_keys(anonymous_keys(spec->keys, keys), "a compiled function");
      rerun(all);
    }
    size_t next = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!spec->results[i].differentiable) continue;
      const Tensor& cotangent = grads[next++];
      if (!cotangent.defined()) continue;
      outputs.push_back(all[i]);
      cotangents.push_back(cotangent);
    }
    int use = 0;
    for (autograd::Outgoing& out : autograd::backward_since(start, outputs, cotangents)) {
      const auto is_it = [&](const autograd::Edge& edge) {
        return edge.leaf.defined() && edge.leaf.is_same(out.to.leaf);
      };
      refuse_replaced(out.to.leaf.defined() && std::none_of(edges.begin(), edges.end(), is_it));
      autograd::send_from(*this, use++, out.to, std::move(out.grad));
    }
  }

  static void refuse_replaced(bool is_replaced) {
    TUTTI_CHECK(!is_replaced,
                "backward of a compiled function: gradients of gradients (create_graph) run the function again, and a "
                "tensor that it holds "
                "was replaced by another one after the forward; write it in place before the forward, or pass it as an "
                "argument");
  }

  void release_saved() override {
    arguments.clear();
    saved.clear();
    carried.clear();
    rerun = nullptr;
    released = true;
  }

  // Memory that the backward reads and others may write: of arguments, held tensors, and results.
  std::vector<StorageRef> storages() const {
    std::vector<StorageRef> list;
    for (const Trace::Source& source : spec->backward->sources) {
      if (source.kind == Trace::Source::Kind::argument)
        list.push_back(inside_of(arguments[static_cast<size_t>(source.index)]).storage());
      if (source.kind == Trace::Source::Kind::captured) list.push_back(spec->held_now(source.index).storage());
      if (source.kind == Trace::Source::Kind::carried)
        list.push_back(carried[static_cast<size_t>(source.index)].storage());
    }
    for (const Tensor& t : saved) list.push_back(t.storage());
    return list;
  }

  // The versions of all memory that the function may read when it runs again.
  std::vector<uint32_t> read_versions() const {
    std::vector<uint32_t> list;
    for (const Tensor& t : arguments) list.push_back(t.version());
    for (const Captured& c : spec->captured) list.push_back(c.tensor.version());
    return list;
  }

  // The cotangents of a result that ops of the function consume, too.
  struct Taken {
    Tensor in_front;  // the sum of those that backward() was given
    std::vector<Tensor> behind;
  };

  const std::shared_ptr<const Specialization> spec;
  std::vector<Tensor> arguments, saved, carried;
  std::map<int, Taken> taken;
  const std::vector<RandomKey> keys;
  Rerun rerun;                 // null: it would do more than give results
  std::vector<Extents> sizes;  // of the differentiable results, inside
  std::vector<uint32_t> versions, versions_read;
};

void write_grads(const Specialization& spec, const Leaves& arguments, std::span<const Tensor> results) {
  for (const GradWrite& w : spec.grad_writes) {
    const Tensor grad = w.result < 0 ? Tensor{} : around(w.form, results[static_cast<size_t>(w.result)]);
    if (w.captured >= 0) {
      set_grad(spec.held_now(w.captured), grad);
      continue;
    }
    const Tensor& leaf = arguments.tensors[static_cast<size_t>(w.argument)];
    const Tensor before = grad_of(leaf);
    const NoGradScope no_grad;
    set_grad(leaf, before.defined() ? add(before, grad) : grad);
  }
}

}  // namespace

std::vector<Tensor> replay(const std::shared_ptr<const Specialization>& self, const Leaves& arguments, MakeRerun rerun,
                           Progress progress) {
  for (const Tensor& t : arguments.tensors) before_host_read(inside_of(t)), autograd::note_captured(t);
  for (const Captured& c : self->captured) before_host_read(inside_of(c.tensor)), autograd::note_captured(c.tensor);
  draw_keys(self->keys, arguments.keys, progress.keys);
  std::vector<Tensor> made =
      self->forward->run(self->memory_of(self->sources, arguments.tensors, {}, progress.carried), {}, progress.keys);
  write_grads(*self, arguments, made);
  for (const Rebinding& r : self->rebindings) {
    rebind(r.argument >= 0 ? arguments.tensors[static_cast<size_t>(r.argument)] : self->held_now(r.captured),
           made[static_cast<size_t>(r.result)]);
  }
  std::vector<Tensor> results;
  for (const ResultSource& source : self->results) {
    const auto i = static_cast<size_t>(source.index);
    results.push_back(source.kind == ResultSource::Kind::graph
                          ? around(source.form, made[i],
                                   source.copied < 0 ? Tensor() : arguments.tensors[static_cast<size_t>(source.copied)])
                      : source.kind == ResultSource::Kind::argument ? arguments.tensors[i]
                                                                    : self->held_now(source.index));
  }
  if (!self->backward) return results;
  std::vector<Tensor> saved(made.begin() + self->backward->first_saved, made.end());
  const bool has_effects =
      progress.has_written || self->forward->writes_given() || !self->grad_writes.empty() || !self->rebindings.empty();
  auto node = std::make_shared<CompiledNode>(self, arguments.tensors, std::move(saved), std::move(progress),
                                             has_effects ? Rerun() : rerun());
  node->order = autograd::next_order();
  for (const JointBackward::Leaf& leaf : self->backward->leaves) {
    node->edges.push_back(autograd::edge_of(leaf.argument >= 0 ? arguments.tensors[static_cast<size_t>(leaf.argument)]
                                                               : self->held_now(leaf.captured)));
  }
  node->num_outputs = 0;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!self->results[k].differentiable) continue;
    node->sizes.push_back(inside_of(results[k]).extents());
    autograd::set_history(results[k], node, node->num_outputs++);
  }
  return results;
}

}  // namespace tutti::graph
