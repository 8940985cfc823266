#include "tutti/ops/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/sorting/ranking.h"

namespace tutti {
namespace {

struct SortAttrs {
  int64_t dim, descending;
  static constexpr auto fields() {
    return field_list(field::number<&SortAttrs::dim>("dim"), field::rule<&SortAttrs::descending>("descending"));
  }
};

const SortAttrs& attrs_of(const OpCall& call) { return call.attrs.as<SortAttrs>(); }

void infer_sort(const OpCall& call, OutputMetas& out) {
  out.add(call[0].dtype(), call[0].sizes());
  out.add(DType::i64, call[0].sizes());
}

// A kernel and not a recipe: a line has to be seen as a whole.
void sort_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  facets::rank_lines(call[0], static_cast<int>(attrs_of(call).dim), attrs_of(call).descending, outputs,
                     [](facets::Ranked* begin, facets::Ranked*, facets::Ranked* end) { std::sort(begin, end); });
}

// Insertion into a sorted line, by the rules as they are written in the header.
void sort_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const auto inserted = [](int64_t length, const facets::Before& before) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < length; ++i) {
      size_t at = order.size();
      while (at > 0 && before(i, order[at - 1])) --at;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), i);
    }
    return order;
  };
  facets::reference_rank(call[0], static_cast<int>(attrs_of(call).dim), attrs_of(call).descending, outputs, inserted);
}

void sort_vjp(const VjpCall& c, std::span<Tensor> grads) { facets::rank_vjp(c, c.attrs.as<SortAttrs>().dim, grads); }

std::vector<Sample> sort_samples() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor special = Tensor::of<float>({1, nan, -0.0f, 0.0f, -1, nan, INFINITY, 1, -INFINITY});
  const Attrs up = Attrs::of(SortAttrs{0, 0}), down = Attrs::of(SortAttrs{0, 1});
  return {
      {"rows", {facets::sample_tensor(1, {7, 3})}, up},
      {"last_bf16", {facets::sample_tensor(2, {2, 9}, DType::bf16, -50.0, 50.0)}, Attrs::of(SortAttrs{1, 1})},
      {"ties_i64", {facets::sample_tensor(3, {23}, DType::i64, 0, 4)}, down},
      {"special_up", {special}, up},
      {"special_down", {special}, down},
      {"strided_f64", {facets::strided_copy(facets::sample_tensor(4, {3, 5}, DType::f64))}, Attrs::of(SortAttrs{1, 0})},
      {"bool", {facets::sample_tensor(5, {9}, DType::boolean)}, down},
      {"empty", {facets::sample_tensor(6, {0, 3})}, up}};
}

const OpDef kSort{
    .name = "sort",
    .num_inputs = 1,
    .num_outputs = 2,
    .infer = infer_sort,
    .reference = sort_reference,
    .gradient = {.vjp = sort_vjp, .saves_outputs = 0b10},
    .kernel = sort_kernel,
    .sharding =
        [](const OpCall& call) {
          const std::string x = facets::dim_letters(call[0].ndim(), 1u << attrs_of(call).dim);
          return fmt::format("#x[{0}] -> v[{0}] #i[{0}]", x);
        },
    .recompute = Recompute::costly,
    .samples = sort_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

SortResult sort(const Tensor& x, int64_t dim, bool descending) {
  TUTTI_CHECK(x.ndim() > 0, "sort: {} has no dim to sort along", describe(x));
  Tensor outputs[2];
  apply(kSort, {&x, 1}, Attrs::of(SortAttrs{normalize_dim(dim, x.ndim(), "sort"), descending}), outputs);
  return {outputs[0], outputs[1]};
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending) { return sort(x, dim, descending).indices; }

}  // namespace tutti

TUTTI_OPS(sort, &kSort)
