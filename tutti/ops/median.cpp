#include "tutti/ops/median.h"

#include <limits>

#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/sorting/selection.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using facets::KeyRange;
using facets::SelectionLine;

// By selection and not by sorting: linear time.
template <bool ignores_nan>
struct MedianKey {
  template <class Key>
  Key operator()(KeyRange<Key> keys) const {
    if constexpr (ignores_nan) {
      keys = keys.without_nan();
      if (keys.size() == 0) return KeyRange<Key>::kNan;
    } else if (keys.has_nan()) {
      return KeyRange<Key>::kNan;
    }
    return keys.at_rank((keys.size() - 1) / 2);
  }
};

template <bool ignores_nan>
int64_t reference_median(const SelectionLine& line) {
  int64_t nans = 0, first_nan = -1;
  for (int64_t i = line.size() - 1; i >= 0; --i) {
    if (line.is_nan(i)) ++nans, first_nan = i;
  }
  if (nans == line.size() || (nans > 0 && !ignores_nan)) return first_nan;
  return line.first_at_rank((line.size() - nans - 1) / 2, true);
}

// Selecting reads the keys about three times.
constexpr double kReads = 3;
Cost median_cost(const OpCall& call) {
  return {.flops = kReads * static_cast<double>(call[0].numel()), .bytes = static_cast<double>(call[0].nbytes())};
}

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::i64, DType::i8, DType::u8, DType::boolean};
const float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// ---- of all elements ------------------------------------------------------------------------------------------------

void infer_all(const OpCall& call, OutputMetas& out) {
  TUTTI_CHECK(is_floating(call[0].dtype()) || numel_of(call[0].sizes()) != 0,
              "{}: x is {}, and integers of no elements have no median; give a tensor that is not empty, or a float "
              "one for NaN",
              call.op.name, describe(call[0]));
  out.add(call[0].dtype(), {});
}

template <bool ignores_nan>
void kernel_all(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor x = to_contiguous(call[0]);
  if (x.numel() == 0) facets::write_double(outputs[0], 0, kNan);
  else
    facets::select_in_lines(x.view_as({x.numel()}, {1}, x.offset()), 0, outputs[0], nullptr, MedianKey<ignores_nan>{});
}

template <bool ignores_nan>
void reference_all(const OpCall& call, std::span<const Tensor> outputs) {
  Dims all;
  for (int64_t d = 0; d < call[0].ndim(); ++d) all.push_back(d);
  if (call[0].numel() == 0) facets::write_double(outputs[0], 0, kNan);
  else facets::reference_select(call[0], all, outputs, reference_median<ignores_nan>);
}

void vjp_all(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Tensor &x = c.inputs[0], &y = c.outputs[0], &g = c.grads[0];
  const Tensor hit = bit_or(eq(x, y), bit_and(ne(x, x), ne(y, y)));
  const Tensor share = truediv(g, sum(cast(hit, compute_dtype(g.dtype()))));
  grads[0] = cast(where(hit, share, 0.0), c.input_metas[0].dtype);
}

std::vector<Sample> samples_all() {
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x) { samples.push_back({std::move(name), {x}, {}}); };
  for (const DType dtype : kDTypes)
    add(fmt::format("line_{}", name_of(dtype)), facets::sample_tensor(3, {21}, dtype, 0, 9));
  add("even_number", facets::sample_tensor(4, {2, 5, 4}));
  add("strided", facets::strided_copy(facets::sample_tensor(5, {3, 7})));
  add("transposed", facets::sample_tensor(6, {6, 5}).view_as({5, 6}, {1, 5}, 0));
  add("ties_bf16", facets::sample_tensor(7, {40}, DType::bf16, 0, 0.02));
  add("nan", Tensor::of<float>({3, kNan, 1, 2, kNan, kInfinity}, {2, 3}));
  add("only_nan", Tensor::of<float>({kNan, kNan}));
  add("scalar", facets::sample_tensor(8, {}));
  add("empty", facets::sample_tensor(9, {0, 3}));
  return samples;
}

template <bool ignores_nan>
OpDef all_op(const char* name) {
  return {
      .name = name,
      .num_inputs = 1,
      .infer = infer_all,
      .reference = reference_all<ignores_nan>,
      .gradient = {.vjp = vjp_all, .saves_inputs = 1, .saves_outputs = 1},
      .kernel = kernel_all<ignores_nan>,  // and not a recipe: the elements have to be seen as a whole
      .sharding =
          [](const OpCall& call) { return fmt::format("#x[{}] -> y[] | |", facets::dim_letters(call[0].ndim(), ~0u)); },
      .recompute = Recompute::costly,
      .cost = median_cost,
      .samples = samples_all,
      .tolerance = {0, 0}};
}
const OpDef kMedian = all_op<false>("median");
const OpDef kNanmedian = all_op<true>("nanmedian");

// ---- of lines -------------------------------------------------------------------------------------------------------

template <bool ignores_nan>
void kernel_lines(const OpCall& call, std::span<const Tensor> outputs) {
  facets::select_in_lines(call[0], static_cast<int>(facets::selection_attrs(call).dim), outputs[0],
                          outputs[1].data<int64_t>(), MedianKey<ignores_nan>{});
}

template <bool ignores_nan>
void reference_lines(const OpCall& call, std::span<const Tensor> outputs) {
  facets::reference_select(call[0], {facets::selection_attrs(call).dim}, outputs, reference_median<ignores_nan>);
}

std::vector<Sample> samples_lines() {
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x, int64_t dim, bool keepdim = false) {
    samples.push_back({std::move(name), {x}, Attrs::of(facets::SelectionAttrs{dim, keepdim})});
  };
  for (const DType dtype : kDTypes)
    add(fmt::format("rows_{}", name_of(dtype)), facets::sample_tensor(3, {3, 17}, dtype, 0, 9), 1);
  add("columns_keepdim", facets::sample_tensor(4, {8, 5}), 0, true);
  add("middle", facets::sample_tensor(5, {2, 6, 3}), 1);
  add("strided", facets::strided_copy(facets::sample_tensor(6, {3, 7})), 1);
  add("ties_bf16", facets::sample_tensor(7, {4, 20}, DType::bf16, 0, 0.02), 1);
  add("nan", Tensor::of<float>({3, kNan, 1, kNan, kNan, kNan, 0, -kInfinity, kInfinity}, {3, 3}), 1);
  add("zeros", Tensor::of<float>({0.0f, -0.0f, kInfinity, -0.0f, 0.0f, kInfinity}, {2, 3}), 1);
  add("one_element", facets::sample_tensor(8, {3, 1}), 1);
  add("scalar", facets::sample_tensor(9, {}), 0);
  add("no_lines", facets::sample_tensor(10, {0, 3}), 1);
  return samples;
}

template <bool ignores_nan>
OpDef lines_op(const char* name) {
  return {.name = name,
          .num_inputs = 1,
          .num_outputs = 2,
          .infer = facets::infer_selection,
          .reference = reference_lines<ignores_nan>,
          .gradient = {.vjp = facets::selection_vjp, .saves_outputs = 0b10},
          .kernel = kernel_lines<ignores_nan>,  // and not a recipe: a line has to be seen as a whole
          .sharding = facets::selection_sharding,
          .recompute = Recompute::costly,
          .cost = median_cost,
          .samples = samples_lines,
          .tolerance = {0, 0}};
}
const OpDef kMedianDim = lines_op<false>("median_dim");
const OpDef kNanmedianDim = lines_op<true>("nanmedian_dim");

SortResult of_lines(const OpDef& op, const char* where, const Tensor& x, int64_t dim, bool keepdim) {
  Tensor outputs[2];
  apply(op, {&x, 1}, facets::selection_attrs_of(where, x, dim, keepdim), outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace

Tensor median(const Tensor& x) { return call_op(kMedian, {}, x); }
Tensor nanmedian(const Tensor& x) { return call_op(kNanmedian, {}, x); }
SortResult median(const Tensor& x, int64_t dim, bool keepdim) {
  return of_lines(kMedianDim, "median", x, dim, keepdim);
}
SortResult nanmedian(const Tensor& x, int64_t dim, bool keepdim) {
  return of_lines(kNanmedianDim, "nanmedian", x, dim, keepdim);
}

}  // namespace tutti

TUTTI_OPS(median, &kMedian, &kNanmedian, &kMedianDim, &kNanmedianDim)
