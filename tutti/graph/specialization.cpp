#include "tutti/graph/specialization.h"

#include <algorithm>

#include "tutti/graph/first_on_storage.h"
#include "tutti/runtime/numerics.h"
#include "tutti/tensor/lent_memory.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {
namespace {

int64_t byte_offset(const Tensor& t) { return t.offset() * itemsize(t.dtype()); }

}  // namespace

HeldView HeldView::of(const Tensor& t, std::span<const Tensor> arguments) {
  HeldView view{t.storage().get(), t.offset(), t.extents(), t.strides(), -1, 0};
  const auto shares = [&](const Tensor& argument) { return inside_of(argument).storage().get() == view.storage; };
  const auto argument = std::find_if(arguments.begin(), arguments.end(), shares);
  if (argument == arguments.end()) return view;
  view.argument = static_cast<int32_t>(argument - arguments.begin());
  view.argument_bytes = byte_offset(inside_of(*argument)) - byte_offset(t);
  return view;
}

bool has_place(const Captured& held, const HeldView& was) {
  const Tensor& t = held.tensor;
  return t.offset() == was.offset && t.extents() == was.sizes && t.strides() == was.strides &&
         requires_grad(t) == held.requires_grad;
}

bool Specialization::captured_state_holds(const Leaves& arguments) const {
  if (mode && *mode != numerics_mode()) return false;
  for (size_t i = 0; i < captured.size(); ++i) {
    const HeldView& was = held[i];
    if (!has_place(captured[i], was) || (!was.moves && captured[i].tensor.storage().get() != was.storage)) return false;
  }
  FirstOnStorage in_arguments(captured.empty() ? 0 : arguments.tensors.size());
  if (!captured.empty()) {
    for (size_t i = 0; i < arguments.tensors.size(); ++i) in_arguments.add(inside_of(arguments.tensors[i]), i);
  }
  for (const Trace::Source& source : sources) {
    if (source.kind != Trace::Source::Kind::captured) continue;
    const Captured& c = captured[static_cast<size_t>(source.index)];
    if (c.grad_of >= 0) {
      const Tensor now = read_now(source.index);
      if (!now.defined() || now.dtype() != c.tensor.dtype() || !(now.extents() == c.tensor.extents()) ||
          !(now.strides() == c.tensor.strides()) || now.offset() != c.tensor.offset())
        return false;
    }
    if (in_arguments.has(c.tensor)) return false;
  }
  for (const Captured& c : captured) {
    const WrapperExtension* was = wrapper_of(c.tensor);
    if (was == nullptr || c.grad_of < 0) continue;
    const WrapperExtension* now = wrapper_of(grad_of(held_now(c.grad_of)));
    if (now == nullptr || !now->has(*was->form(c.tensor))) return false;
  }
  for (const GradWrite& w : grad_writes) {
    if (w.captured < 0) continue;
    const Captured& c = captured[static_cast<size_t>(w.captured)];
    if (grad_of(c.tensor).defined() != c.grad_before.defined()) return false;
  }
  // A captured tensor that stood on the memory of an argument must do so again, at the same place.
  for (size_t i = 0; i < captured.size(); ++i) {
    if (held[i].argument < 0) continue;
    const Tensor &t = captured[i].tensor,
                 &argument = inside_of(arguments.tensors[static_cast<size_t>(held[i].argument)]);
    if (argument.storage().get() != t.storage().get() ||
        byte_offset(argument) - byte_offset(t) != held[i].argument_bytes)
      return false;
  }
  return true;
}

Tensor Specialization::read_now(int32_t i) const {
  const int32_t leaf = captured[static_cast<size_t>(i)].grad_of;
  return inside_of(leaf >= 0 ? grad_of(held_now(leaf)) : held_now(i));
}

std::vector<GivenMemory> Specialization::memory_of(const std::vector<Trace::Source>& list,
                                                   std::span<const Tensor> arguments, std::span<const Tensor> later,
                                                   std::span<const Tensor> carried) const {
  using Kind = Trace::Source::Kind;
  std::vector<GivenMemory> given;
  given.reserve(list.size());
  for (const Trace::Source& source : list) {
    const auto i = static_cast<size_t>(source.index);
    if (source.kind == Kind::argument) {
      const Tensor& t = inside_of(arguments[i]);
      given.push_back({t.storage(), t.offset() * itemsize(t.dtype()) - source.lead});
    } else if (source.kind == Kind::later || source.kind == Kind::carried) {
      const Tensor& t = (source.kind == Kind::later ? later : carried)[i];
      given.push_back({t.storage(), t.offset() * itemsize(t.dtype())});
    } else {
      const Tensor now = read_now(source.index);
      given.push_back({now.storage(), 0, lender_of(now)});
    }
  }
  return given;
}

}  // namespace tutti::graph
