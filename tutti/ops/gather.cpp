#include "tutti/ops/gather.h"

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scatter_add.h"

namespace tutti {
namespace {

using IndexAttrs = DimAttrs;

size_t dim_of(const Attrs& attrs) { return static_cast<size_t>(attrs.as<IndexAttrs>().dim); }

void check_indices(const OpCall& call) {
  const size_t dim = dim_of(call.attrs);
  facets::check_index_range(call.op.name, call[1], call[0].extents()[dim],
                            fmt::format("elements of dim {} of {}", dim, describe(call[0])));
}

// x is read at input 1 along the dim of the call.
template <Pick::Loops loops>
constexpr Recipe kTake{.build = [](RecipeBuilder& b) { b.out(b.in(0)); },
                       .pick =
                           [](const OpCall& call) {
                             return Pick{.index = 1, .dim = call.attrs.as<IndexAttrs>().dim, .loops = loops, .read = 0};
                           },
                       .explain = check_indices,
                       .moves_bits = true};

// What a gradient is added to: zeros that leave the bits of their addend.
Tensor sum_start(const Tensor& grad, const OutputMeta& meta) {
  return full_beside(grad, meta.sizes, facets::kSumIdentity, compute_dtype(meta.dtype));
}

// ---- gather ---------------------------------------------------------------------------------------------------------

void infer_gather(const OpCall& call, OutputMetas& out) {
  const Tensor &x = call[0], &index = call[1];
  facets::check_index_dtype("gather", index);
  TUTTI_CHECK_EQ(x.ndim(), index.ndim(), "gather: {} and the index {} differ in dims", describe(x), describe(index));
  for (size_t d = 0; d < x.sizes().size(); ++d) {
    TUTTI_CHECK(d == dim_of(call.attrs) || index.sizes()[d] <= x.sizes()[d],
                "gather: dim {} of the index {} is larger than that of {}", d, describe(index), describe(x));
  }
  out.add(x.dtype(), index.sizes());
}

void gather_reference(const OpCall& call, std::span<const Tensor> outputs) {
  check_indices(call);
  facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
    Extents source = at;
    source[dim_of(call.attrs)] = facets::read_int64(call[1], facets::offset_at(call[1], at));
    facets::move_element(outputs[0], at, call[0], source);
  });
}

// Dims beside the gathered one are shardable where x and index have the same size.
std::string gather_sharding(const OpCall& call) {
  std::string x = facets::dim_letters(call[0].ndim()), index = x;
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == dim_of(call.attrs)) x[d] = 'Z', index[d] = 'k';
    else if (call[0].extents()[d] != call[1].extents()[d]) x[d] = 'X', index[d] = 'Y';
  }
  return fmt::format("x[{0}] #i[{1}] -> y[{1}] | | id", x, index);
}

std::vector<Sample> gather_samples() {
  const auto index = [](uint64_t seed, const Extents& sizes, double n, DType dtype) {
    return facets::sample_tensor(seed, sizes, dtype, 0, n);
  };
  return {
      {"rows", {facets::sample_tensor(1, {5, 3}), index(2, {7, 3}, 5, DType::i64)}, Attrs::of(IndexAttrs{0})},
      {"last_bf16",
       {facets::sample_tensor(3, {4, 9}, DType::bf16), index(4, {4, 2}, 9, DType::i32)},
       Attrs::of(IndexAttrs{1})},
      {"narrower", {facets::sample_tensor(5, {3, 4, 5}), index(6, {2, 6, 5}, 4, DType::i64)}, Attrs::of(IndexAttrs{1})},
      {"strided",
       {facets::strided_copy(facets::sample_tensor(7, {3, 5})), index(8, {3, 4}, 5, DType::i64)},
       Attrs::of(IndexAttrs{1})},
      {"empty", {facets::sample_tensor(9, {3, 5}), index(10, {3, 0}, 5, DType::i64)}, Attrs::of(IndexAttrs{1})}};
}

const OpDef kGather{
    .name = "gather",
    .num_inputs = 2,
    .infer = infer_gather,
    .reference = gather_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       if (!c.needs(0)) return;
                       grads[0] = scatter_add(sum_start(c.grads[0], c.input_metas[0]), c.attrs.as<IndexAttrs>().dim,
                                              c.inputs[1], c.grads[0]);
                     },
                 .saves_inputs = 0b10},
    .recipe = kTake<Pick::Loops::of_index>,
    .sharding = gather_sharding,
    .samples = gather_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- index_select ---------------------------------------------------------------------------------------------------

void index_select_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.needs(0)) return;
  const size_t dim = dim_of(c.attrs);
  Shape column(c.input_metas[0].sizes.size(), 1);
  column[dim] = -1;
  const Tensor index = expand(reshape(c.inputs[1], column), c.grads[0].sizes());
  grads[0] = scatter_add(sum_start(c.grads[0], c.input_metas[0]), static_cast<int64_t>(dim), index, c.grads[0]);
}

std::vector<Sample> index_select_samples() {
  const Tensor rows = Tensor::of<int64_t>({4, 0, 0, 2}), columns = Tensor::of<int32_t>({1, 2, 1});
  return {{"rows", {facets::sample_tensor(1, {5, 3}), rows}, Attrs::of(IndexAttrs{0})},
          {"columns_bf16", {facets::sample_tensor(2, {2, 3, 4}, DType::bf16), columns}, Attrs::of(IndexAttrs{1})},
          {"strided_i64",
           {facets::strided_copy(facets::sample_tensor(3, {5, 2}, DType::i64)), rows},
           Attrs::of(IndexAttrs{0})},
          {"none", {facets::sample_tensor(4, {5, 2}), Tensor::empty({0}, DType::i64)}, Attrs::of(IndexAttrs{0})}};
}

const OpDef kIndexSelect{
    .name = "index_select",
    .num_inputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          facets::check_index_dtype("index_select", call[1]);
          TUTTI_CHECK(call[1].ndim() == 1, "index_select: the index {} must have one dim", describe(call[1]));
          Shape sizes = call[0].sizes();
          sizes[dim_of(call.attrs)] = call[1].sizes()[0];
          out.add(call[0].dtype(), sizes);
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          check_indices(call);
          const size_t dim = dim_of(call.attrs);
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            Extents source = at;
            source[dim] = facets::read_int64(call[1], at[dim] * call[1].strides()[0]);
            facets::move_element(outputs[0], at, call[0], source);
          });
        },
    .gradient = {.vjp = index_select_vjp, .saves_inputs = 0b10},
    .recipe = kTake<Pick::Loops::spliced>,
    .sharding =
        [](const OpCall& call) {
          std::string x = facets::dim_letters(call[0].ndim()), y = x;
          x[dim_of(call.attrs)] = 'Z';
          y[dim_of(call.attrs)] = 'k';
          return fmt::format("x[{}] #i[k] -> y[{}] | | id", x, y);
        },
    .samples = index_select_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

Attrs attrs_for(const Tensor& x, int64_t dim, const char* where) {
  return Attrs::of(IndexAttrs{normalize_dim(dim, x.ndim(), where)});
}

}  // namespace

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  return call_op(kGather, attrs_for(x, dim, "gather"), x, index);
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  return call_op(kIndexSelect, attrs_for(x, dim, "index_select"), x, index);
}

}  // namespace tutti

TUTTI_OPS(gather, &kGather, &kIndexSelect)
