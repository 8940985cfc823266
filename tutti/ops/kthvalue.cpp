#include "tutti/ops/kthvalue.h"

#include <limits>

#include "tutti/ops/sorting/selection.h"

namespace tutti {
namespace {

using facets::KeyRange;
using facets::selection_attrs;
using facets::SelectionAttrs;

// A kernel and not a recipe: a line has to be seen as a whole. By selection and not by sorting: linear time.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const SelectionAttrs& a = selection_attrs(call);
  facets::select_in_lines(call[0], static_cast<int>(a.dim), outputs[0], outputs[1].data<int64_t>(),
                          [&]<class Key>(const KeyRange<Key>& keys) { return keys.at_rank(a.k - 1); });
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const SelectionAttrs& a = selection_attrs(call);
  facets::reference_select(call[0], {a.dim}, outputs,
                           [&](const facets::SelectionLine& line) { return line.first_at_rank(a.k - 1); });
}

std::vector<Sample> samples() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x, int64_t k, int64_t dim, bool keepdim = false) {
    samples.push_back({std::move(name), {x}, Attrs::of(SelectionAttrs{dim, keepdim, k})});
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::i64, DType::i16, DType::u8, DType::boolean})
    add(fmt::format("rows_{}", name_of(dtype)), facets::sample_tensor(3, {3, 17}, dtype, 0, 9), 5, 1);
  add("columns_keepdim", facets::sample_tensor(4, {8, 5}), 8, 0, true);
  add("middle", facets::sample_tensor(5, {2, 6, 3}), 1, 1);
  add("strided", facets::strided_copy(facets::sample_tensor(6, {3, 7})), 3, 1);
  add("ties_bf16", facets::sample_tensor(7, {4, 20}, DType::bf16, 0, 0.02), 7, 1);
  add("nan", Tensor::of<float>({3, nan, 1, nan, nan, nan}, {2, 3}), 3, 1);
  add("scalar", facets::sample_tensor(8, {}), 1, 0);
  add("no_lines", facets::sample_tensor(9, {0, 3}), 2, 1);
  return samples;
}

const OpDef kKthvalue{
    .name = "kthvalue",
    .num_inputs = 1,
    .num_outputs = 2,
    .infer = facets::infer_selection,
    .reference = reference,
    .gradient = {.vjp = facets::selection_vjp, .saves_outputs = 0b10},
    .kernel = kernel,
    .sharding = facets::selection_sharding,
    .recompute = Recompute::costly,
    // Selecting reads the keys about three times.
    .cost = [](const OpCall& call) -> Cost {
      return {.flops = 3 * static_cast<double>(call[0].numel()), .bytes = static_cast<double>(call[0].nbytes())};
    },
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

SortResult kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  const Attrs attrs = facets::selection_attrs_of("kthvalue", x, dim, keepdim, k);
  const int64_t d = attrs.as<SelectionAttrs>().dim;
  const SymInt length = x.ndim() == 0 ? SymInt(1) : x.sizes()[static_cast<size_t>(d)];
  TUTTI_CHECK(k >= 1 && length >= k,
              "kthvalue: k is {}, dim {} of {} has {} elements; expected 1 to the number of elements", k, d,
              describe(x), length);
  Tensor outputs[2];
  apply(kKthvalue, {&x, 1}, attrs, outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace tutti

TUTTI_OPS(kthvalue, &kKthvalue)
