#include "tutti/ops/nonzero.h"

#include <algorithm>

#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"

namespace tutti {
namespace {

struct NonzeroAttrs {
  SymInt size;
  int64_t fill;
  static constexpr auto fields() {
    return field_list(field::size<&NonzeroAttrs::size>("size"), field::number<&NonzeroAttrs::fill>("fill"));
  }
};

void infer(const OpCall& call, OutputMetas& out) {
  out.add(DType::i64, {call.attrs.as<NonzeroAttrs>().size, call[0].ndim()});
}

// Writes the index of each element for which is_nonzero(offset) into the next row, and `fill` into the rows that are
// left.
template <class IsNonzero>
void write_rows(const OpCall& call, const Tensor& rows, IsNonzero is_nonzero) {
  int64_t* out = rows.data<int64_t>();
  int64_t* const end = out + rows.numel();
  const auto dims = static_cast<size_t>(call[0].ndim());
  int64_t left = rows.extents()[0];
  facets::for_each_index(call[0].extents(), [&](const Extents& at) {
    if (left == 0 || !is_nonzero(facets::offset_at(call[0], at))) return;
    --left;
    for (size_t d = 0; d < dims; ++d) *out++ = at[d];
  });
  std::fill(out, end, call.attrs.as<NonzeroAttrs>().fill);
}

// A kernel and not a recipe: where a row goes depends on all elements before it. Looks at bits, so that no dtype needs
// a case: zero is all bits zero, but for the sign of a float.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const int64_t item = itemsize(x.dtype());
  const auto* bytes = static_cast<const unsigned char*>(x.raw_data());
  const unsigned char sign = is_floating(x.dtype()) ? 0x80 : 0;
  write_rows(call, outputs[0], [&](int64_t offset) {
    const unsigned char* element = bytes + offset * item;
    unsigned char any = element[item - 1] & static_cast<unsigned char>(~sign);
    for (int64_t b = 0; b < item - 1; ++b) any |= element[b];
    return any != 0;
  });
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const bool floats = is_floating(call[0].dtype());
  write_rows(call, outputs[0], [&](int64_t offset) {
    return floats ? facets::read_double(call[0], offset) != 0 : facets::read_int64(call[0], offset) != 0;
  });
}

std::vector<Sample> samples() {
  const auto attrs = [](int64_t size) { return Attrs::of(NonzeroAttrs{size, -1}); };
  return {{"fits", {Tensor::of<float>({0, 1, -0.0f, 1e-45f, 2})}, attrs(3)},
          {"cut", {facets::sample_tensor(1, {5, 7}, DType::i32, 0, 2)}, attrs(4)},
          {"filled", {facets::sample_tensor(2, {3, 4}, DType::boolean, 0, 2)}, attrs(20)},
          {"strided_bf16", {facets::strided_copy(facets::sample_tensor(3, {3, 5}, DType::bf16, 0, 2))}, attrs(15)},
          {"no_dims", {Tensor::scalar(true)}, attrs(1)},
          {"empty", {facets::sample_tensor(4, {3, 0})}, attrs(2)}};
}

const OpDef kNonzeroStatic{
    .name = "nonzero_static",
    .num_inputs = 1,
    .infer = infer,
    .reference = reference,
    .gradient = {.none = "indices are integers"},
    .kernel = kernel,
    .sharding =
        [](const OpCall& call) { return fmt::format("#x[{}] -> #i[YZ]", facets::dim_letters(call[0].ndim(), ~0u)); },
    .recompute = Recompute::costly,
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor nonzero_static(const Tensor& x, SymInt size, int64_t fill) {
  TUTTI_CHECK(size >= 0, "nonzero_static: size is {}; expected 0 or more rows", size);
  return apply1(kNonzeroStatic, {&x, 1}, Attrs::of(NonzeroAttrs{size, fill}));
}

Tensor nonzero(const Tensor& x) {
  const int64_t count = sum(cast(ne(x, 0), DType::i64)).item_int();
  return nonzero_static(x, count);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  TUTTI_CHECK(mask.dtype() == DType::boolean, "masked_select: the mask is {}; expected booleans", describe(mask));
  const Shape sizes = broadcast_shapes(x.sizes(), mask.sizes(), "masked_select");
  const Tensor where = nonzero(reshape(expand(mask, sizes), {-1}));
  return index_select(reshape(expand(x, sizes), {-1}), 0, reshape(where, {-1}));
}

}  // namespace tutti

TUTTI_OPS(nonzero, &kNonzeroStatic)
