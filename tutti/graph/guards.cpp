#include "tutti/graph/guards.h"

#include "tutti/autograd/tape.h"
#include "tutti/graph/plain_values.h"
#include "tutti/ops/sum_to.h"

namespace tutti::graph {
namespace {

int64_t byte_offset(const Tensor& t) { return t.offset() * itemsize(t.dtype()); }

int32_t alias_of(const std::vector<Tensor>& tensors, size_t i) {
  const Storage* storage = tensors[i].storage().get();
  for (size_t j = 0; j < i; ++j) {
    if (tensors[j].storage().get() == storage) return static_cast<int32_t>(j);
  }
  return static_cast<int32_t>(i);
}

int32_t same_as(const std::vector<Tensor>& tensors, size_t i, int32_t first) {
  for (auto j = static_cast<size_t>(first); j < i; ++j) {
    if (tensors[j].is_same(tensors[i])) return static_cast<int32_t>(j);
  }
  return static_cast<int32_t>(i);
}

TensorGuard guard_of(const std::vector<Tensor>& tensors, size_t i) {
  const Tensor& t = tensors[i];
  const int32_t alias = alias_of(tensors, i);
  return {t.dtype(), t.device(), requires_grad(t), static_cast<int8_t>(byte_offset(t) & 7), same_as(tensors, i, alias), alias,
          byte_offset(t) - byte_offset(tensors[static_cast<size_t>(alias)]), t.extents(), t.strides()};
}

}  // namespace

Guards Guards::of(const Leaves& arguments) {
  Guards g{.grad_enabled = is_grad_enabled(), .token_grain = tutti::token_grain(), .plain = arguments.plain, .sizes = arguments.sizes, .tensors = {}};
  for (size_t i = 0; i < arguments.tensors.size(); ++i) g.tensors.push_back(guard_of(arguments.tensors, i));
  return g;
}

bool Guards::hold(const Leaves& arguments) const {
  if (arguments.tensors.size() != tensors.size() || grad_enabled != is_grad_enabled() || token_grain != tutti::token_grain() ||
      arguments.plain != plain || arguments.sizes != sizes)
    return false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = arguments.tensors[i];
    const TensorGuard& g = tensors[i];
    if (t.dtype() != g.dtype || !(t.extents() == g.sizes) || !(t.strides() == g.strides)) return false;
    if (!(guard_of(arguments.tensors, i) == g)) return false;
  }
  return true;
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
    like_here.tensors[i].strides = arguments.tensors[i].strides();
  }
  return like_here.hold(arguments);
}

std::string Guards::first_difference(const Leaves& arguments) const {
  if (grad_enabled != is_grad_enabled()) return fmt::format("gradients are {}, were {}", grad_enabled ? "off" : "on", grad_enabled ? "on" : "off");
  if (token_grain != tutti::token_grain()) return fmt::format("the token grain is {}, was {}", tutti::token_grain(), token_grain);
  if (arguments.plain != plain) return plain_difference(arguments.plain, plain);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (arguments.sizes[i] != sizes[i]) return fmt::format("the size that is argument {} is {}, was {}", i, arguments.sizes[i], sizes[i]);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorGuard now = guard_of(arguments.tensors, i), &then = tensors[i];
    const auto said = [&](const char* what, const auto& a, const auto& b) { return fmt::format("{} of tensor {} is {}, was {}", what, i, a, b); };
    if (now.dtype != then.dtype) return said("dtype", name_of(now.dtype), name_of(then.dtype));
    if (!(now.sizes == then.sizes)) return said("shape", now.sizes, then.sizes);
    if (!(now.strides == then.strides)) return said("strides", now.strides, then.strides);
    if (!(now.device == then.device)) return said("device", to_string(now.device), to_string(then.device));
    if (now.requires_grad != then.requires_grad) return said("requires_grad", now.requires_grad, then.requires_grad);
    if (now.same != then.same) return said("the argument that is the same tensor", now.same, then.same);
    if (now.alias != then.alias) return said("the argument whose memory it shares", now.alias, then.alias);
    if (now.alias_bytes != then.alias_bytes) return said("its distance in bytes from the argument it shares memory with", now.alias_bytes, then.alias_bytes);
    if (now.phase != then.phase) return said("its place within 8 bytes", now.phase, then.phase);
  }
  return "";
}

}  // namespace tutti::graph
