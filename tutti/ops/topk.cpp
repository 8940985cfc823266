#include "tutti/ops/topk.h"

#include <algorithm>
#include <limits>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/lines.h"
#include "tutti/ops/engine/order.h"
#include "tutti/ops/scatter.h"

namespace tutti {
namespace {

struct TopkAttrs {
  int64_t dim, k, largest;
};

const TopkAttrs& attrs_of(const OpCall& call) { return call.attrs.as<TopkAttrs>(); }

void infer_topk(const OpCall& call, OutputMetas& out) {
  Shape sizes = call[0].sizes();
  sizes[static_cast<size_t>(attrs_of(call).dim)] = attrs_of(call).k;
  out.add(call[0].dtype(), sizes);
  out.add(DType::i64, sizes);
}

template <class T>
void topk_lines(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &x = call[0], &values = outputs[0], &indices = outputs[1];
  const int dim = static_cast<int>(attrs_of(call).dim);
  const size_t d = static_cast<size_t>(dim);
  const uint64_t flip = attrs_of(call).largest ? ~uint64_t{0} : 0;
  const int64_t length = x.extents()[d], k = attrs_of(call).k, from_step = x.strides()[d], to_step = values.strides()[d];
  facets::for_each_line(x, dim, [&](int64_t begin, int64_t end) {
    std::vector<facets::Ranked> line(static_cast<size_t>(length));
    for (int64_t l = begin; l < end; ++l) {
      const T* from = static_cast<const T*>(x.raw_data()) + facets::line_offset(x, dim, l);
      const int64_t to = facets::line_offset(values, dim, l);
      for (int64_t i = 0; i < length; ++i) line[static_cast<size_t>(i)] = {facets::order_key(from[i * from_step]) ^ flip, i};
      std::partial_sort(line.begin(), line.begin() + k, line.end());
      for (int64_t i = 0; i < k; ++i) {
        const int64_t source = line[static_cast<size_t>(i)].index;
        static_cast<T*>(values.raw_data())[to + i * to_step] = from[source * from_step];
        static_cast<int64_t*>(indices.raw_data())[to + i * to_step] = source;
      }
    }
  });
}

// A kernel and not a recipe: a line has to be seen as a whole.
void topk_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  if (outputs[0].numel() == 0) return;
  visit_dtype(call[0].dtype(), [&]<class T>() { topk_lines<T>(call, outputs); });
}

// Takes the best element that is left, k times.
void topk_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const size_t d = static_cast<size_t>(attrs_of(call).dim);
  const bool integer = !is_floating(x.dtype()), largest = attrs_of(call).largest != 0;
  const auto less = [&](int64_t a, int64_t b) {
    if (integer) return facets::read_int64(x, a) < facets::read_int64(x, b);
    const double p = facets::read_double(x, a), q = facets::read_double(x, b);
    return p < q || (q != q && p == p);
  };
  if (outputs[0].numel() == 0) return;
  Extents lines = x.extents();
  lines[d] = 1;
  facets::for_each_index(lines, [&](const Extents& start) {
    const int64_t base = facets::offset_at(x, start), step = x.strides()[d];
    std::vector<bool> taken(static_cast<size_t>(x.extents()[d]));
    for (int64_t i = 0; i < attrs_of(call).k; ++i) {
      int64_t best = -1;
      for (int64_t j = 0; j < x.extents()[d]; ++j) {
        if (taken[static_cast<size_t>(j)]) continue;
        const int64_t a = base + j * step, b = base + best * step;
        if (best < 0 || (largest ? less(b, a) : less(a, b))) best = j;
      }
      taken[static_cast<size_t>(best)] = true;
      Extents target = start, source = start;
      target[d] = i;
      source[d] = best;
      facets::move_element(outputs[0], target, x, source);
      facets::write_int64(outputs[1], facets::offset_at(outputs[1], target), best);
    }
  });
}

void topk_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Tensor start = full(c.input_metas[0].sizes, facets::kSumIdentity, c.grads[0].dtype());
  grads[0] = scatter(start, c.attrs.as<TopkAttrs>().dim, c.outputs[1], c.grads[0]);
}

std::vector<Sample> topk_samples() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {{"router", {facets::sample_tensor(1, {5, 16})}, Attrs::of(TopkAttrs{1, 4, 1})},
          {"smallest_rows", {facets::sample_tensor(2, {9, 3})}, Attrs::of(TopkAttrs{0, 2, 0})},
          {"ties_bf16", {facets::sample_tensor(3, {2, 33}, DType::bf16, 0, 0.02)}, Attrs::of(TopkAttrs{1, 7, 1})},
          {"nan", {Tensor::of<float>({1, nan, 3, nan, 2})}, Attrs::of(TopkAttrs{0, 3, 1})},
          {"all_i32", {facets::sample_tensor(4, {11}, DType::i32, 0, 5)}, Attrs::of(TopkAttrs{0, 11, 1})},
          {"none", {facets::sample_tensor(5, {4})}, Attrs::of(TopkAttrs{0, 0, 1})}};
}

const OpDef kTopk{
    .name = "topk",
    .num_inputs = 1,
    .num_outputs = 2,
    .infer = infer_topk,
    .reference = topk_reference,
    .gradient = {.vjp = topk_vjp, .saves_outputs = 0b10},
    .kernel = topk_kernel,
    .sharding =
        [](const OpCall& call) {
          const std::string x = facets::dim_letters(call[0].ndim(), 1u << attrs_of(call).dim);
          std::string y = x;
          y[static_cast<size_t>(attrs_of(call).dim)] = 'Z';
          return fmt::format("#x[{0}] -> v[{1}] #i[{1}]", x, y);
        },
    .samples = topk_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

SortResult topk(const Tensor& x, int64_t k, const TopkOptions& options) {
  const int dim = normalize_dim(options.dim, x.ndim(), "topk");
  TUTTI_CHECK(k >= 0 && k <= x.sizes()[static_cast<size_t>(dim)].guard_int(),
              "topk: k is {}, dim {} of {} has {} elements", k, dim, describe(x), x.sizes()[static_cast<size_t>(dim)]);
  Tensor outputs[2];
  apply(kTopk, {&x, 1}, Attrs::of(TopkAttrs{dim, k, options.largest}), outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace tutti

TUTTI_OPS(topk, &kTopk)
