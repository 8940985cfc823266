#include "tutti/ops/scatter_add.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/scatter_targets.h"
#include "tutti/ops/gather.h"

namespace tutti {
namespace {

void infer_scatter_add(const OpCall& call, OutputMetas& out) {
  TUTTI_CHECK(call[0].dtype() == call[2].dtype() || (is_floating(call[0].dtype()) && is_floating(call[2].dtype())),
              "scatter_add: the source {} cannot be added to {}; cast it", describe(call[2]), describe(call[0]));
  facets::infer_scatter(call, out);
}

// target = source, converted; dense tensors.
void convert_elements(const Tensor& target, const Tensor& source) {
  visit_dtype(target.dtype(), [&]<class To>() {
    visit_dtype(source.dtype(), [&]<class From>() {
      if constexpr (std::is_arithmetic_v<To> || std::is_arithmetic_v<From>) {
        To* to = static_cast<To*>(target.raw_data());
        const From* from = static_cast<const From*>(source.raw_data());
        for (int64_t i = 0; i < target.numel(); ++i) {
          if constexpr (std::is_arithmetic_v<To> && std::is_arithmetic_v<From>) to[i] = static_cast<To>(from[i]);
          else if constexpr (std::is_arithmetic_v<To>) to[i] = static_cast<To>(to_float(from[i]));
          else store_from_double(to + i, target.dtype(), static_cast<double>(from[i]));
        }
      }
    });
  });
}

template <class Sum>
void add_targets(const OpCall& call, const Tensor& sums) {
  Sum* to = static_cast<Sum*>(sums.raw_data());
  visit_dtype(call[2].dtype(), [&]<class Source>() {
    const Source* from = static_cast<const Source*>(call[2].raw_data());
    facets::for_each_target(call, sums, [=](int64_t target, int64_t source) {
      if constexpr (std::is_arithmetic_v<Source>) to[target] = static_cast<Sum>(to[target] + static_cast<Sum>(from[source]));
      else to[target] += static_cast<Sum>(to_float(from[source]));
    });
  });
}

// A kernel and not a recipe: the address of an element comes from memory.
void scatter_add_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const DType dtype = outputs[0].dtype();
  const bool wide = compute_dtype(dtype) == dtype;
  const Tensor sums = wide ? outputs[0] : Tensor::empty(outputs[0].extents(), compute_dtype(dtype));
  if (wide) facets::raw_copy(sums, call[0]);
  else convert_elements(sums, to_contiguous(call[0]));
  visit_dtype(sums.dtype(), [&]<class Sum>() {
    if constexpr (std::is_arithmetic_v<Sum>) add_targets<Sum>(call, sums);
  });
  if (!wide) convert_elements(outputs[0], sums);
}

void scatter_add_reference(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_scatter_indices(call);
  const bool integer = !is_floating(call[0].dtype());
  const Tensor sums = Tensor::empty(call[0].extents(), integer ? DType::i64 : DType::f64);
  const Tensor pair[] = {call[0], sums};
  facets::for_each_element(call[0].extents(), pair, [&](int64_t, const int64_t* at) {
    if (integer) facets::write_int64(sums, at[1], facets::read_int64(call[0], at[0]));
    else facets::write_double(sums, at[1], facets::read_double(call[0], at[0]));
  });
  facets::for_each_index(call[1].extents(), [&](const Extents& at) {
    Extents target = at;
    target[facets::scatter_dim(call.attrs)] = facets::read_int64(call[1], facets::offset_at(call[1], at));
    const int64_t t = facets::offset_at(sums, target), s = facets::offset_at(call[2], at);
    if (integer) facets::write_int64(sums, t, facets::read_int64(sums, t) + facets::read_int64(call[2], s));
    else facets::write_double(sums, t, facets::read_double(sums, t) + facets::read_double(call[2], s));
  });
  for (int64_t i = 0; i < sums.numel(); ++i) {
    if (integer) facets::write_int64(outputs[0], i, facets::read_int64(sums, i));
    else facets::write_double(outputs[0], i, facets::read_double(sums, i));
  }
}

void scatter_add_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (c.needs(0)) grads[0] = c.grads[0];
  if (c.needs(2)) grads[2] = gather(c.grads[0], c.attrs.as<facets::ScatterAttrs>().dim, c.inputs[1]);
}

const OpDef kScatterAdd{
    .name = "scatter_add",
    .num_inputs = 3,
    .infer = infer_scatter_add,
    .reference = scatter_add_reference,
    .gradient = {.vjp = scatter_add_vjp, .saves_inputs = 0b10},
    .check = facets::check_scatter_indices,
    .kernel = scatter_add_kernel,
    .sharding = [](const OpCall& call) { return facets::scatter_sharding(call, "lin"); },
    .samples =
        [] {
          const auto index = [](uint64_t seed, const Extents& sizes, double n, DType dtype = DType::i64) {
            return facets::sample_tensor(seed, sizes, dtype, 0, n);
          };
          return std::vector<Sample>{
              {"rows", {facets::sample_tensor(1, {4, 5}), index(2, {9, 5}, 4), facets::sample_tensor(3, {9, 5})}, Attrs::of(facets::ScatterAttrs{0})},
              {"columns_i32", {facets::sample_tensor(4, {3, 4}), index(5, {2, 8}, 4, DType::i32), facets::sample_tensor(6, {2, 8})}, Attrs::of(facets::ScatterAttrs{1})},
              {"bf16", {facets::sample_tensor(7, {3, 4}, DType::bf16), index(8, {7, 4}, 3), facets::sample_tensor(9, {7, 4}, DType::bf16)}, Attrs::of(facets::ScatterAttrs{0})},
              {"integers", {facets::sample_tensor(10, {5}, DType::i32), index(11, {12}, 5), facets::sample_tensor(12, {12}, DType::i32)}, Attrs::of(facets::ScatterAttrs{0})},
              {"f64", {facets::sample_tensor(13, {3, 2}, DType::f64), index(14, {6, 2}, 3), facets::sample_tensor(15, {6, 2}, DType::f64)}, Attrs::of(facets::ScatterAttrs{0})}};
        },
};

}  // namespace

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return call_op(kScatterAdd, Attrs::of(facets::ScatterAttrs{normalize_dim(dim, x.ndim(), "scatter_add")}), x, index, source);
}

}  // namespace tutti

TUTTI_OPS(scatter_add, &kScatterAdd)
