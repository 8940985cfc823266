#include "tutti/comm/functional/op_words.h"

#include <algorithm>

#include "tutti/comm/collective_def.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/number.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::comm::functional {

// ---- gradients ------------------------------------------------------------------------------------------------------

Tensor scaled_cotangent(const Tensor& sum, const ReduceOp& op, int ranks) {
  if (op.kind() == ReduceKind::avg) return truediv(sum, static_cast<double>(ranks));
  if (op.kind() == ReduceKind::premul_sum) return mul(sum, op.factor());
  return sum;
}

// By where and not by a product: what is not chosen may be NaN. Booleans: add is "or", mul is "and".
Tensor masked_cotangent(const Tensor& grad, const Tensor& input, const Tensor& result) {
  const Tensor holds = add(eq(input, result), mul(isnan(input), isnan(result)));
  return where(holds, grad, 0.0);
}

void throw_no_gradient(const char* op, const ReduceOp& reduce) {
  throw UsageError(fmt::format("{} with {} has no gradient; sum, avg, premul_sum{} have one", op,
                               name_of(reduce.kind()),
                               std::string_view(op).starts_with("all_reduce") ? ", min and max" : ""));
}

Tensor placeholder(const Shape& sizes, DType dtype) {
  const Extents extents = concrete(sizes);
  return Tensor::empty({1}, dtype).view_as(extents, Extents(extents.size(), 0), 0);
}

Tensor no_cotangent(const OutputMeta& meta) { return zeros(meta.sizes, meta.dtype); }

// ---- dims -----------------------------------------------------------------------------------------------------------

namespace {

void check_dims(const char* op, const Tensor& x) {
  TUTTI_CHECK(x.ndim() > 0, "{}: the tensor {} has no dims; reshape it to [1]", op, describe(x));
}

}  // namespace

Shape gathered_sizes(const char* op, const Tensor& x, int ranks) {
  check_dims(op, x);
  Shape sizes = x.sizes();
  sizes[0] *= ranks;
  return sizes;
}

Shape scattered_sizes(const char* op, const Tensor& x, int ranks) {
  check_dims(op, x);
  Shape sizes = x.sizes();
  TUTTI_CHECK(remainder(sizes[0], ranks) == 0, "{}: dim 0 of {} has {} elements, which {} ranks do not divide", op,
              describe(x), sizes[0], ranks);
  sizes[0] = floordiv(sizes[0], ranks);
  return sizes;
}

Tensor before_gather(const char* op, const Tensor& x, int64_t dim) {
  TUTTI_CHECK(x.defined(), "{}: the tensor is undefined", op);
  if (x.ndim() > 0) {
    normalize_dim(dim, x.ndim(), op);
    return x;
  }
  TUTTI_CHECK(dim == 0 || dim == -1, "{}: dim {} of the tensor {}, which has none; its gather has dim 0 only", op, dim,
              describe(x));
  return reshape(x, {1});
}

Tensor after_gather(const char* op, const Tensor& gathered, const Tensor& x, int64_t dim, int ranks) {
  const int d = x.ndim() == 0 ? 0 : normalize_dim(dim, x.ndim(), op);
  if (d == 0) return gathered;
  // [W * a, ..., c, ...] -> [W, a, ..., c, ...] -> [a, ..., W, c, ...] -> [a, ..., W * c, ...]
  const Tensor ranks_first = unflatten(gathered, 0, {ranks, x.sizes()[0]});
  Dims order;
  for (int i = 1; i <= d; ++i) order.push_back(i);
  order.push_back(0);
  for (int i = d + 1; i <= x.ndim(); ++i) order.push_back(i);
  Shape sizes = x.sizes();
  sizes[static_cast<size_t>(d)] *= ranks;
  return reshape(permute(ranks_first, order), sizes);
}

Tensor before_scatter(const char* op, const Tensor& x, int64_t dim, int ranks) {
  TUTTI_CHECK(x.defined(), "{}: the tensor is undefined", op);
  check_dims(op, x);
  const int d = normalize_dim(dim, x.ndim(), op);
  const SymInt size = x.sizes()[static_cast<size_t>(d)];
  TUTTI_CHECK(remainder(size, ranks) == 0, "{}: dim {} of {} has {} elements, which {} ranks do not divide", op, d,
              describe(x), size, ranks);
  if (d == 0) return x;
  // [a, ..., W * c, ...] -> [a, ..., W, c, ...] -> [W, a, ..., c, ...]
  Dims order{d};
  for (int i = 0; i <= x.ndim(); ++i) {
    if (i != d) order.push_back(i);
  }
  return permute(unflatten(x, d, {ranks, floordiv(size, ranks)}), order);
}

Tensor after_scatter(const char* op, const Tensor& part, const Tensor& x, int64_t dim) {
  return normalize_dim(dim, x.ndim(), op) == 0 ? part : squeeze(part, 0);
}

// ---- results of several tensors -------------------------------------------------------------------------------------

namespace {

constexpr int64_t kPartAlignment = 64;

struct PartAttrs {
  int64_t offset;
  DType dtype;
  Extents sizes;
  static constexpr auto fields() {
    return field_list(field::number<&PartAttrs::offset>("offset"), field::output_dtype<&PartAttrs::dtype>("dtype"),
                      field::number<&PartAttrs::sizes>("sizes"));
  }
};

}  // namespace

Arena Arena::of(std::span<const OutputMeta> parts) {
  Arena arena;
  for (const OutputMeta& part : parts) {
    arena.offsets.push_back(arena.bytes);
    const int64_t bytes = checked_mul(numel_of(concrete(part.sizes)), itemsize(part.dtype));
    arena.bytes = checked_add(arena.bytes, (checked_add(bytes, kPartAlignment - 1)) / kPartAlignment * kPartAlignment);
  }
  return arena;
}

const OpDef kPart{
    .name = "collective_part",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const PartAttrs& a = call.attrs.as<PartAttrs>();
          out.add(a.dtype, to_shape(a.sizes));
        },
    .gradient = {.none = "it reads bytes; the collective that wrote them records the gradient"},
    .view =
        [](const OpCall& call) {
          const PartAttrs& a = call.attrs.as<PartAttrs>();
          return Tensor::over(call[0].storage(), a.sizes, contiguous_strides(a.sizes), a.offset / itemsize(a.dtype),
                              a.dtype);
        },
    .cost = [](const OpCall&) { return Cost{}; },
};

Tensor part_of(const Tensor& arena, int64_t offset, const OutputMeta& meta) {
  return call_op(kPart, Attrs::of(PartAttrs{offset, meta.dtype, concrete(meta.sizes)}), arena);
}

Tensor part_target(const Tensor& target, int64_t offset, const OutputMeta& meta) {
  const Extents sizes = concrete(meta.sizes);
  return Tensor::over(target.storage(), sizes, contiguous_strides(sizes), offset / itemsize(meta.dtype), meta.dtype);
}

// ---- ops ------------------------------------------------------------------------------------------------------------

std::span<const OpDef* const> ops() {
  static const std::vector<const OpDef*> all = [] {
    std::vector<const OpDef*> list = {&kWaitTensor, &kPart};
    for (const CollectiveDef* def : collective_table())
      std::copy_if(def->functional.begin(), def->functional.end(), std::back_inserter(list),
                   [](auto* op) { return op != nullptr; });
    return list;
  }();
  return all;
}

}  // namespace tutti::comm::functional
