#include "tutti/ops/topk.h"

#include <algorithm>
#include <limits>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/sorting/ranking.h"

namespace tutti {
namespace {

struct TopkAttrs {
  int64_t dim, k, largest;
  static constexpr auto fields() {
    return field_list(field::number<&TopkAttrs::dim>("dim"), field::number<&TopkAttrs::k>("k"),
                      field::rule<&TopkAttrs::largest>("largest"));
  }
};

const TopkAttrs& attrs_of(const OpCall& call) { return call.attrs.as<TopkAttrs>(); }

void infer_topk(const OpCall& call, OutputMetas& out) {
  Shape sizes = call[0].sizes();
  sizes[static_cast<size_t>(attrs_of(call).dim)] = attrs_of(call).k;
  out.add(call[0].dtype(), sizes);
  out.add(DType::i64, sizes);
}

// A kernel and not a recipe: a line has to be seen as a whole.
void topk_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  facets::rank_lines(call[0], static_cast<int>(attrs_of(call).dim), attrs_of(call).largest, outputs,
                     [](facets::Ranked* begin, facets::Ranked* middle, facets::Ranked* end) {
                       std::partial_sort(begin, middle, end);
                     });
}

// Takes the best element that is left, k times.
void topk_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const auto best_ones = [&](int64_t length, const facets::Before& before) {
    std::vector<bool> taken(static_cast<size_t>(length));
    std::vector<int64_t> order;
    for (int64_t i = 0; i < attrs_of(call).k; ++i) {
      int64_t best = -1;
      for (int64_t j = 0; j < length; ++j) {
        if (!taken[static_cast<size_t>(j)] && (best < 0 || before(j, best))) best = j;
      }
      taken[static_cast<size_t>(best)] = true;
      order.push_back(best);
    }
    return order;
  };
  facets::reference_rank(call[0], static_cast<int>(attrs_of(call).dim), attrs_of(call).largest, outputs, best_ones);
}

void topk_vjp(const VjpCall& c, std::span<Tensor> grads) { facets::rank_vjp(c, c.attrs.as<TopkAttrs>().dim, grads); }

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
    .recompute = Recompute::costly,
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
