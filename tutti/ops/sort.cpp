#include "tutti/ops/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/lines.h"
#include "tutti/ops/engine/order.h"
#include "tutti/ops/scatter.h"

namespace tutti {
namespace {

struct SortAttrs {
  int64_t dim, descending;
};

const SortAttrs& attrs_of(const OpCall& call) { return call.attrs.as<SortAttrs>(); }

void infer_sort(const OpCall& call, OutputMetas& out) {
  out.add(call[0].dtype(), call[0].sizes());
  out.add(DType::i64, call[0].sizes());
}

template <class T>
void sort_lines(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &x = call[0], &values = outputs[0], &indices = outputs[1];
  const int dim = static_cast<int>(attrs_of(call).dim);
  const size_t d = static_cast<size_t>(dim);
  const uint64_t flip = attrs_of(call).descending ? ~uint64_t{0} : 0;
  const int64_t length = x.extents()[d], from_step = x.strides()[d], to_step = values.strides()[d];
  facets::for_each_line(x, dim, [&](int64_t begin, int64_t end) {
    std::vector<facets::Ranked> line(static_cast<size_t>(length));
    for (int64_t l = begin; l < end; ++l) {
      const T* from = static_cast<const T*>(x.raw_data()) + facets::line_offset(x, dim, l);
      const int64_t to = facets::line_offset(values, dim, l);
      for (int64_t i = 0; i < length; ++i) line[static_cast<size_t>(i)] = {facets::order_key(from[i * from_step]) ^ flip, i};
      std::sort(line.begin(), line.end());
      for (int64_t i = 0; i < length; ++i) {
        const int64_t source = line[static_cast<size_t>(i)].index;
        static_cast<T*>(values.raw_data())[to + i * to_step] = from[source * from_step];
        static_cast<int64_t*>(indices.raw_data())[to + i * to_step] = source;
      }
    }
  });
}

// A kernel and not a recipe: a line has to be seen as a whole.
void sort_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  visit_dtype(call[0].dtype(), [&]<class T>() { sort_lines<T>(call, outputs); });
}

// Insertion into a sorted line, by the rules as they are written in the header.
void sort_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const size_t d = static_cast<size_t>(attrs_of(call).dim);
  const bool integer = !is_floating(x.dtype()), descending = attrs_of(call).descending != 0;
  const auto less = [&](int64_t a, int64_t b) {
    if (integer) return facets::read_int64(x, a) < facets::read_int64(x, b);
    const double p = facets::read_double(x, a), q = facets::read_double(x, b);
    return p < q || (q != q && p == p);
  };
  Extents lines = x.extents();
  lines[d] = 1;
  if (x.numel() == 0) return;
  facets::for_each_index(lines, [&](const Extents& start) {
    const int64_t base = facets::offset_at(x, start), step = x.strides()[d];
    std::vector<int64_t> order;
    for (int64_t i = 0; i < x.extents()[d]; ++i) {
      size_t at = order.size();
      while (at > 0) {
        const int64_t left = base + order[at - 1] * step, right = base + i * step;
        if (!(descending ? less(left, right) : less(right, left))) break;
        --at;
      }
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), i);
    }
    for (size_t i = 0; i < order.size(); ++i) {
      Extents target = start, source = start;
      target[d] = static_cast<int64_t>(i);
      source[d] = order[i];
      facets::move_element(outputs[0], target, x, source);
      facets::write_int64(outputs[1], facets::offset_at(outputs[1], target), order[i]);
    }
  });
}

void sort_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Tensor start = full(c.input_metas[0].sizes, facets::kSumIdentity, c.grads[0].dtype());
  grads[0] = scatter(start, c.attrs.as<SortAttrs>().dim, c.outputs[1], c.grads[0]);
}

std::vector<Sample> sort_samples() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor special = Tensor::of<float>({1, nan, -0.0f, 0.0f, -1, nan, INFINITY, 1, -INFINITY});
  const Attrs up = Attrs::of(SortAttrs{0, 0}), down = Attrs::of(SortAttrs{0, 1});
  return {{"rows", {facets::sample_tensor(1, {7, 3})}, up},
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
