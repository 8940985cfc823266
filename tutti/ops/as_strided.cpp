#include "tutti/ops/as_strided.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

struct StridedAttrs {
  Extents sizes, strides;
  int64_t offset;
  static constexpr auto fields() {
    return field_list(field::number<&StridedAttrs::sizes>("sizes"), field::number<&StridedAttrs::strides>("strides"),
                      field::number<&StridedAttrs::offset>("offset"));
  }
};

Tensor strided_view(const OpCall& call) {
  const StridedAttrs& a = call.attrs.as<StridedAttrs>();
  return call[0].view_as(a.sizes, a.strides, a.offset);
}

const OpDef kAsStrided{
    .name = "as_strided",
    .num_inputs = 1,
    .infer = [](const OpCall& call,
                OutputMetas& out) { out.add(call[0].dtype(), to_shape(call.attrs.as<StridedAttrs>().sizes)); },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const StridedAttrs& a = call.attrs.as<StridedAttrs>();
          const Tensor flat = call[0].view_as({call[0].storage()->nbytes() / itemsize(call[0].dtype())}, {1}, 0);
          facets::for_each_index(a.sizes, [&](const Extents& at) {
            int64_t element = a.offset;
            for (size_t d = 0; d < at.size(); ++d) element += at[d] * a.strides[d];
            facets::move_element(outputs[0], at, flat, {element});
          });
        },
    .gradient =
        {.none = "it reads memory by position; use slice, permute, expand, diagonal or unfold, which have gradients"},
    .view = strided_view,
    // Only whole tensors: a rank's memory has other positions.
    .sharding =
        [](const OpCall& call) {
          return fmt::format("#x[{}] -> y[{}]", facets::dim_letters(call[0].ndim(), ~0u),
                             facets::dim_letters(call.attrs.as<StridedAttrs>().sizes.ndim(), ~0u));
        },
    .samples =
        [] {
          const Tensor x = facets::sample_tensor(1, {6, 4});
          return std::vector<Sample>{{"overlapping", {x}, Attrs::of(StridedAttrs{{5, 3}, {4, 2}, 1})},
                                     {"transposed", {x}, Attrs::of(StridedAttrs{{4, 6}, {1, 4}, 0})},
                                     {"scalar", {x}, Attrs::of(StridedAttrs{{}, {}, 7})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor as_strided(const Tensor& x, const Extents& sizes, const Extents& strides, int64_t offset) {
  concrete(x.sizes());  // how far the storage reaches is a matter of integers, also in a trace
  return call_op(kAsStrided, Attrs::of(StridedAttrs{sizes, strides, offset}), x);
}

}  // namespace tutti

TUTTI_OPS(as_strided, &kAsStrided)
