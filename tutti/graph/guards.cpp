#include "tutti/graph/guards.h"

#include "tutti/autograd/tape.h"
#include "tutti/graph/first_on_storage.h"
#include "tutti/graph/plain_values.h"
#include "tutti/ops/sum_to.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {
namespace {

int64_t byte_offset(const Tensor& t) { return t.offset() * itemsize(t.dtype()); }

// The first places of the tensors of a list, asked for in its order.
struct Firsts {
  explicit Firsts(const std::vector<Tensor>& tensors) : on_storage(tensors.size()), same(tensors) {}
  FirstOnStorage on_storage;
  FirstSame same;
};

int8_t phase_of(const Tensor& inside) { return static_cast<int8_t>(byte_offset(inside) & 7); }

int64_t distance(const std::vector<Tensor>& tensors, int32_t alias, const Tensor& inside) {
  return byte_offset(inside) - byte_offset(inside_of(tensors[static_cast<size_t>(alias)]));
}

TensorGuard guard_of(const std::vector<Tensor>& tensors, size_t i, Firsts& firsts) {
  const Tensor &t = tensors[i], &inside = inside_of(t);
  const int32_t alias = firsts.on_storage.add(inside, i);
  TensorGuard guard{t.dtype(),
                    t.device(),
                    requires_grad(t),
                    phase_of(inside),
                    firsts.same.add(i, alias),
                    alias,
                    distance(tensors, alias, inside),
                    t.extents(),
                    t.strides()};
  if (&inside != &t) guard.inside_strides = inside.strides();
  return guard;
}

// Whether guard_of() would give `g`.
bool holds(const TensorGuard& g, const std::vector<Tensor>& tensors, size_t i, Firsts& firsts) {
  const Tensor &t = tensors[i], &inside = inside_of(t);
  return firsts.on_storage.add(inside, i) == g.alias && t.dtype() == g.dtype && t.extents() == g.sizes &&
         t.strides() == g.strides && t.device() == g.device && requires_grad(t) == g.requires_grad &&
         phase_of(inside) == g.phase && distance(tensors, g.alias, inside) == g.alias_bytes &&
         firsts.same.add(i, g.alias) == g.same &&
         (&inside == &t ? g.inside_strides.empty() : g.inside_strides == inside.strides());
}

// Whether the tensors are wrappers of these forms, or none where there is no form.
bool have_forms(const std::vector<Tensor>& tensors, const std::vector<std::shared_ptr<const WrapperForm>>& forms) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const WrapperExtension* wrapper = wrapper_of(tensors[i]);
    const WrapperForm* form = forms.empty() ? nullptr : forms[i].get();
    if ((wrapper == nullptr) != (form == nullptr) || (wrapper != nullptr && !wrapper->has(*form))) return false;
  }
  return true;
}

std::string form_text(const WrapperForm* form) {
  return form == nullptr ? "that of a plain tensor" : form->description();
}

}  // namespace

Guards Guards::of(const Leaves& arguments) {
  Guards g{.grad_enabled = is_grad_enabled(),
           .token_grain = tutti::token_grain(),
           .plain = arguments.plain,
           .sizes = arguments.sizes,
           .tensors = {},
           .forms = {}};
  Firsts firsts(arguments.tensors);
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    g.tensors.push_back(guard_of(arguments.tensors, i, firsts));
    if (std::shared_ptr<const WrapperForm> form = form_of(arguments.tensors[i])) {
      g.forms.resize(arguments.tensors.size());
      g.forms[i] = std::move(form);
    }
  }
  return g;
}

bool Guards::hold(const Leaves& arguments) const {
  if (arguments.tensors.size() != tensors.size() || grad_enabled != is_grad_enabled() ||
      token_grain != tutti::token_grain() || arguments.plain != plain || arguments.sizes != sizes)
    return false;
  Firsts firsts(arguments.tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!holds(tensors[i], arguments.tensors, i, firsts)) return false;
  }
  return have_forms(arguments.tensors, forms);
}

bool Guards::hold(const Leaves& arguments, FunctionRef<bool(int tensor, int dim)> is_free) const {
  if (arguments.tensors.size() != tensors.size() || arguments.sizes.size() != sizes.size()) return false;
  Guards like_here = *this;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (is_free(kSizes, static_cast<int>(i))) like_here.sizes[i] = arguments.sizes[i];
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Extents& now = arguments.tensors[i].extents();
    Extents& then = like_here.tensors[i].sizes;
    if (then.ndim() != now.ndim()) return false;
    for (size_t d = 0; d < then.size(); ++d) {
      if (is_free(static_cast<int>(i), static_cast<int>(d))) then[d] = now[d];
    }
    const Tensor& t = arguments.tensors[i];
    like_here.tensors[i].strides = t.strides();
    if (wrapper_of(t) == nullptr || forms.empty() || forms[i] == nullptr) continue;
    if (inside_of(t).ndim() != t.ndim()) return false;
    like_here.tensors[i].inside_strides = inside_of(t).strides();
    like_here.forms[i] = forms[i]->for_inside(inside_of(t).extents());
  }
  return like_here.hold(arguments);
}

std::string Guards::first_difference(const Leaves& arguments) const {
  if (grad_enabled != is_grad_enabled())
    return fmt::format("gradients are {}, were {}", grad_enabled ? "off" : "on", grad_enabled ? "on" : "off");
  if (token_grain != tutti::token_grain())
    return fmt::format("the token grain is {}, was {}", tutti::token_grain(), token_grain);
  if (arguments.plain != plain) return plain_difference(arguments.plain, plain);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (arguments.sizes[i] != sizes[i])
      return fmt::format("the size that is argument {} is {}, was {}", i, arguments.sizes[i], sizes[i]);
  }
  Firsts firsts(arguments.tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorGuard now = guard_of(arguments.tensors, i, firsts), &then = tensors[i];
    const auto said = [&](const char* what, const auto& a, const auto& b) {
      return fmt::format("{} of tensor {} is {}, was {}", what, i, a, b);
    };
    if (now.dtype != then.dtype) return said("dtype", name_of(now.dtype), name_of(then.dtype));
    const std::shared_ptr<const WrapperForm> is = form_of(arguments.tensors[i]),
                                             was = forms.empty() ? nullptr : forms[i];
    if (const std::string a = form_text(is.get()), b = form_text(was.get()); a != b) return said("layout", a, b);
    if (was != nullptr && !wrapper_of(arguments.tensors[i])->has(*was))
      return fmt::format("what the layout of tensor {}, {}, belongs to was made anew", i, was->description());
    if (!(now.sizes == then.sizes)) return said("shape", now.sizes, then.sizes);
    if (!(now.strides == then.strides)) return said("strides", now.strides, then.strides);
    if (!(now.inside_strides == then.inside_strides))
      return said("strides of the part", now.inside_strides, then.inside_strides);
    if (!(now.device == then.device)) return said("device", to_string(now.device), to_string(then.device));
    if (now.requires_grad != then.requires_grad) return said("requires_grad", now.requires_grad, then.requires_grad);
    if (now.same != then.same) return said("the argument that is the same tensor", now.same, then.same);
    if (now.alias != then.alias) return said("the argument whose memory it shares", now.alias, then.alias);
    if (now.alias_bytes != then.alias_bytes)
      return said("its distance in bytes from the argument it shares memory with", now.alias_bytes, then.alias_bytes);
    if (now.phase != then.phase) return said("its place within 8 bytes", now.phase, then.phase);
  }
  return "";
}

}  // namespace tutti::graph
