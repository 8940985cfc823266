#include "tutti/ops/mode.h"

#include <cmath>
#include <limits>

#include "tutti/ops/sorting/selection.h"

namespace tutti {
namespace {

using facets::KeyRange;
using facets::selection_attrs;
using facets::SelectionAttrs;

// The longest run of equal keys, the first of several.
template <class Key>
Key most_frequent(KeyRange<Key> keys) {
  keys = keys.without_nan();
  if (keys.size() == 0) return KeyRange<Key>::kNan;
  std::sort(keys.begin, keys.end);
  Key best = *keys.begin;
  int64_t longest = 0;
  for (const Key* run = keys.begin; run != keys.end;) {
    const Key* behind = run;
    while (behind != keys.end && *behind == *run) ++behind;
    if (behind - run > longest) longest = behind - run, best = *run;
    run = behind;
  }
  return best;
}

// A kernel and not a recipe: a line has to be seen as a whole.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  facets::select_in_lines(call[0], static_cast<int>(selection_attrs(call).dim), outputs[0], outputs[1].data<int64_t>(),
                          []<class Key>(const KeyRange<Key>& keys) { return most_frequent(keys); });
}

// Counts the elements that are equal to each.
int64_t reference_mode(const facets::SelectionLine& line) {
  int64_t best = 0, most = 0;
  for (int64_t i = 0; i < line.size(); ++i) {
    int64_t count = 0;
    for (int64_t j = 0; j < line.size(); ++j)
      count += i == j || (!line.is_nan(i) && !line.less(i, j) && !line.less(j, i));
    if (count > most || (count == most && line.less(i, best))) best = i, most = count;
  }
  return best;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  facets::reference_select(call[0], {selection_attrs(call).dim}, outputs, reference_mode);
}

// Floats that have a gradient occur once each in f32 and f64 samples: where counts change, a mode has no derivative.
std::vector<Sample> samples() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x, int64_t dim, bool keepdim = false) {
    samples.push_back({std::move(name), {x}, Attrs::of(SelectionAttrs{dim, keepdim})});
  };
  for (const DType dtype : {DType::i64, DType::i32, DType::u8, DType::boolean})
    add(fmt::format("rows_{}", name_of(dtype)), facets::sample_tensor(3, {3, 17}, dtype, 0, 5), 1);
  add("columns_keepdim", facets::sample_tensor(4, {8, 5}, DType::i64, 0, 3), 0, true);
  add("middle", facets::sample_tensor(5, {2, 6, 3}, DType::i64, 0, 3), 1);
  add("distinct", facets::sample_tensor(5, {2, 6, 3}), 1);
  add("distinct_f64", facets::sample_tensor(5, {4, 5}, DType::f64), 1);
  add("strided", facets::strided_copy(facets::sample_tensor(6, {3, 7})), 1);
  add("ties_bf16", facets::sample_tensor(7, {4, 20}, DType::bf16, 0, 0.02), 1);
  add("nan", Tensor::of<float>({nan, nan, 3, nan, nan, nan, -0.0f, 0.0f, -1}, {3, 3}), 1);
  add("scalar", facets::sample_tensor(8, {}), 0);
  add("no_lines", facets::sample_tensor(9, {0, 3}), 1);
  return samples;
}

const OpDef kMode{
    .name = "mode",
    .num_inputs = 1,
    .num_outputs = 2,
    .infer = facets::infer_selection,
    .reference = reference,
    .gradient = {.vjp = facets::selection_vjp, .saves_outputs = 0b10},
    .kernel = kernel,
    .sharding = facets::selection_sharding,
    .recompute = Recompute::costly,
    // Sorting a line of n takes about log2(n) comparisons per element.
    .cost = [](const OpCall& call) -> Cost {
      const double n = call[0].ndim() == 0
                           ? 1.0
                           : static_cast<double>(call[0].extents()[static_cast<size_t>(selection_attrs(call).dim)]);
      return {.flops = std::log2(n + 1) * static_cast<double>(call[0].numel()),
              .bytes = static_cast<double>(call[0].nbytes())};
    },
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

SortResult mode(const Tensor& x, int64_t dim, bool keepdim) {
  Tensor outputs[2];
  apply(kMode, {&x, 1}, facets::selection_attrs_of("mode", x, dim, keepdim), outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace tutti

TUTTI_OPS(mode, &kMode)
