#include "tutti/graph/verify.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/random_key.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/lent_memory.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {
namespace {

// The elements of `t` on this rank. Undefined without elements to look at: memory may be given back, or lent to those
// who read it.
Tensor readable(const Tensor& tensor) {
  const Tensor& t = inside_of(tensor);
  return t.defined() && t.storage()->has_memory() && lender_of(t) == nullptr ? t : Tensor{};
}

Tensor independent_copy(const Tensor& tensor) {
  const Tensor t = readable(tensor);
  if (!t.defined()) return {};
  before_host_read(t);
  const Tensor copy = Tensor::empty(t.extents(), t.dtype());
  copy_elements(copy, t);
  return copy;
}

// Puts tensors that are written, and their gradients, back when it goes.
class Undo {
 public:
  void keep(const Tensor& t) {
    const Tensor grad = grad_of(t);
    kept_.push_back({t, independent_copy(t), grad, independent_copy(grad)});
  }
  ~Undo() {
    for (const Kept& k : kept_) {
      const Tensor& t = inside_of(k.tensor);
      Storage& storage = *t.storage();
      if (storage.has_memory() && !k.before.defined() && lender_of(t) == nullptr) storage.release_memory();
      if (!storage.has_memory() && k.before.defined()) storage.restore_memory();
      if (k.before.defined()) copy_elements(t, k.before);
      if (k.grad.defined()) copy_elements(inside_of(k.grad), k.grad_before);
      const Tensor grad = grad_of(k.tensor);
      const bool same = grad.defined() == k.grad.defined() && (!grad.defined() || grad.is_same(k.grad));
      if (!same) set_grad(k.tensor, k.grad);
    }
  }

 private:
  struct Kept {
    Tensor tensor, before, grad, grad_before;
  };
  std::vector<Kept> kept_;
};

// "" when both have the same bits.
std::string first_difference(const Tensor& of_compiled, const Tensor& of_eager) {
  const Tensor &compiled = inside_of(of_compiled), &eager = inside_of(of_eager);
  if (compiled.defined() != eager.defined())
    return fmt::format("is {} and eagerly {}", describe(compiled), describe(eager));
  if (!compiled.defined()) return "";
  if (compiled.dtype() != eager.dtype() || compiled.extents() != eager.extents())
    return fmt::format("is {} and eagerly {}", describe(compiled), describe(eager));
  before_host_read(compiled);
  before_host_read(eager);
  const Tensor a = to_contiguous(compiled), b = to_contiguous(eager);
  const int64_t item = itemsize(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(static_cast<char*>(a.raw_data()) + i * item, static_cast<char*>(b.raw_data()) + i * item,
                    static_cast<size_t>(item)) != 0)
      return fmt::format("has {:a} as element {} in row-major order, eagerly {:a}", facets::read_double(a, i), i,
                         facets::read_double(b, i));
  }
  return "";
}

// How far, in bytes, `a` begins behind `b` on one storage; nothing when they share none.
std::optional<int64_t> distance(const Tensor& first, const Tensor& second) {
  const Tensor &a = inside_of(first), &b = inside_of(second);
  if (!a.defined() || !b.defined() || a.storage().get() != b.storage().get()) return std::nullopt;
  return a.offset() * itemsize(a.dtype()) - b.offset() * itemsize(b.dtype());
}

}  // namespace

Verification::Verification(const Specialization& specialization, const Leaves& arguments, TraceFn fn)
    : specialization_(specialization), arguments_(arguments) {
  std::map<const Storage*, StorageRef> copied;
  for (const Tensor& argument : arguments.tensors) {
    const Tensor& t = inside_of(argument);
    TUTTI_CHECK(t.device() == kCpu, "verify: an argument is {}; only tensors of the host can be compared", describe(t));
    const auto same = std::find_if(arguments.tensors.begin(), arguments.tensors.end(),
                                   [&](const Tensor& other) { return other.is_same(argument); });
    if (const auto k = static_cast<size_t>(same - arguments.tensors.begin()); k < copies_.size()) {
      copies_.push_back(copies_[k]);
      continue;
    }
    StorageRef& storage = copied[t.storage().get()];
    if (!storage) {
      storage = StorageRef::adopt(Storage::allocate(t.storage()->nbytes(), kCpu));
      if (t.storage()->has_memory()) {
        before_host_read(t);
        if (storage->nbytes() > 0)
          std::memcpy(storage->data(), t.storage()->data(), static_cast<size_t>(storage->nbytes()));
      } else {
        storage->release_memory();
      }
    }
    copies_.push_back(
        around(form_of(argument), Tensor::over(storage, t.extents(), t.strides(), t.offset(), t.dtype())));
    if (requires_grad(argument)) requires_grad_(copies_.back());
    if (const Tensor grad = grad_of(argument); grad.defined())
      set_grad(copies_.back(), around(form_of(grad), independent_copy(grad)));
  }
  Undo undo;
  for (const Captured& c : specialization.captured) undo.keep(c.tensor);
  const std::vector<SymInt> sizes(arguments.sizes.begin(), arguments.sizes.end());
  const std::function<void()> rewind_keys = mark_random_keys();
  try {
    fn({copies_, sizes, arguments.keys}, results_);
  } catch (const CaptureError&) {
    throw;
  } catch (const std::exception& e) {
    thrown_ = e.what();  // the compiled call throws it, after what comes before it
  }
  rewind_keys();  // the compiled call draws the same
  for (const Captured& c : specialization.captured)
    held_.push_back({c.tensor, independent_copy(c.tensor), independent_copy(grad_of(c.tensor))});
}

std::string Verification::maker_of(size_t result) const {
  const ResultSource& source = specialization_.results[result];
  if (source.kind != ResultSource::Kind::graph) return "";
  const Graph& graph = specialization_.forward->graph();
  const int32_t buffer = graph.results[static_cast<size_t>(source.index)].buffer;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    for (const Value& v : graph.nodes[n].outputs) {
      if (v.buffer == buffer) return fmt::format(", made by {},", graph.nodes[n].op->name);
    }
  }
  return "";
}

std::string Verification::difference(std::span<const Tensor> results) const {
  if (thrown_) return fmt::format("it returned, and op by op it throws \"{}\"", *thrown_);
  for (size_t i = 0; i < results.size(); ++i) {
    if (const std::string d = first_difference(readable(results[i]), readable(results_[i])); !d.empty())
      return fmt::format("result {}{} {}", i, maker_of(i), d);
    for (size_t k = 0; k < copies_.size(); ++k) {
      if (distance(results[i], arguments_.tensors[k]) != distance(results_[i], copies_[k]))
        return fmt::format("result {} does not share memory with argument {} as it does eagerly", i, k);
    }
    for (size_t k = 0; k < i; ++k) {
      if (distance(results[i], results[k]) != distance(results_[i], results_[k]))
        return fmt::format("results {} and {} do not share memory as they do eagerly", i, k);
    }
  }
  for (size_t k = 0; k < copies_.size(); ++k) {
    if (const std::string d = first_difference(readable(arguments_.tensors[k]), readable(copies_[k])); !d.empty())
      return fmt::format("argument {} {} after the call", k, d);
    if (const std::string d = first_difference(grad_of(arguments_.tensors[k]), grad_of(copies_[k])); !d.empty())
      return fmt::format("the gradient of argument {} {} after the call", k, d);
  }
  for (const Held& h : held_) {
    if (const std::string d = first_difference(readable(h.tensor), h.after); !d.empty())
      return fmt::format("a held tensor {} {} after the call", describe(h.tensor), d);
    if (const std::string d = first_difference(grad_of(h.tensor), h.grad_after); !d.empty())
      return fmt::format("the gradient of a held tensor {} {} after the call", describe(h.tensor), d);
  }
  return "";
}

void Verification::compare(const std::string& function, std::span<const Tensor> results) const {
  const std::string found = difference(results);
  if (found.empty()) return;
  throw CaptureError(32, fmt::format("'{}' does not do what it does op by op: {}. It may read something that a trace "
                                     "cannot see, such as a plain number "
                                     "that it holds by reference, or random numbers of the host; pass those as "
                                     "arguments. If it does not, please report this",
                                     function, found));
}

}  // namespace tutti::graph
