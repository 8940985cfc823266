#include "tutti/ops/flip.h"

#include "tutti/core/number.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

struct FlipAttrs {
  Dims dims;
  static constexpr auto fields() { return field_list(field::number<&FlipAttrs::dims>("dims")); }
};

const Dims& dims_of(const Attrs& attrs) { return attrs.as<FlipAttrs>().dims; }

const OpDef kFlip{
    .name = "flip",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            Extents source = at;
            for (const int64_t d : dims_of(call.attrs)) {
              const size_t k = static_cast<size_t>(d);
              source[k] = outputs[0].extents()[k] - 1 - at[k];
            }
            facets::move_element(outputs[0], at, call[0], source);
          });
        },
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = flip(c.grads[0], dims_of(c.attrs)); }},
    // A kernel and not a recipe: the copy walks x from behind, by strides that a recipe cannot ask for.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Tensor& x = call[0];
          if (x.numel() == 0) return;
          Extents strides = x.strides();
          int64_t offset = x.offset();
          for (const int64_t d : dims_of(call.attrs)) {
            const size_t k = static_cast<size_t>(d);
            offset += (x.extents()[k] - 1) * strides[k];
            strides[k] = -strides[k];
          }
          facets::raw_copy(outputs[0], x.view_as(x.extents(), strides, offset));
        },
    .sharding =
        [](const OpCall& call) {
          uint32_t whole = 0;
          for (const int64_t d : dims_of(call.attrs)) whole |= 1u << d;
          return fmt::format("x[{0}] -> y[{0}] | | id", facets::dim_letters(call[0].ndim(), whole));
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {"rows", {facets::sample_tensor(1, {5, 3})}, Attrs::of(FlipAttrs{{0}})},
              {"both_strided", {facets::strided_copy(facets::sample_tensor(2, {3, 17}))}, Attrs::of(FlipAttrs{{0, 1}})},
              {"inner_bf16", {facets::sample_tensor(3, {2, 3, 9}, DType::bf16)}, Attrs::of(FlipAttrs{{2}})},
              {"empty", {facets::sample_tensor(4, {0, 2})}, Attrs::of(FlipAttrs{{0}})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor flip(const Tensor& x, const Dims& dims) {
  return call_op(kFlip, Attrs::of(FlipAttrs{normalize_dims(dims, x.ndim(), "flip")}), x);
}

Tensor roll(const Tensor& x, int64_t shift, int64_t dim) {
  const int d = normalize_dim(dim, x.ndim(), "roll");
  const int64_t size = x.sizes()[static_cast<size_t>(d)].guard_int();
  const int64_t moved = size == 0 ? 0 : remainder_i64(shift, size);
  if (moved == 0) return clone(x);
  return cat({narrow(x, d, size - moved, moved), narrow(x, d, 0, size - moved)}, d);
}

}  // namespace tutti

TUTTI_OPS(flip, &kFlip)
