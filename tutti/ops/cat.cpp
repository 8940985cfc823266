#include "tutti/ops/cat.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

struct CatAttrs {
  int64_t dim;
  static constexpr auto fields() { return field_list(field::number<&CatAttrs::dim>("dim")); }
};

size_t dim_of(const Attrs& attrs) { return static_cast<size_t>(attrs.as<CatAttrs>().dim); }

void infer_cat(const OpCall& call, OutputMetas& out) {
  const size_t dim = dim_of(call.attrs);
  Shape sizes = call[0].sizes();
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const Tensor& x = call[i];
    TUTTI_CHECK(x.dtype() == call[0].dtype(), "cat: tensor {} is {}, tensor 0 is {}; cast them to one dtype", i,
                describe(x), describe(call[0]));
    Shape expected = x.sizes();
    if (x.ndim() == sizes.ndim()) expected[dim] = sizes[dim];
    TUTTI_CHECK(expected == sizes, "cat: tensor {} is {}, tensor 0 is {}; they may differ in dim {} only", i,
                describe(x), describe(call[0]), dim);
    sizes[dim] += x.sizes()[dim];
  }
  out.add(call[0].dtype(), sizes);
}

// Calls place(i, view): the part of `whole` along `dim` that belongs to input i.
template <class Place>
void for_each_part(const OpCall& call, const Tensor& whole, Place place) {
  const size_t dim = dim_of(call.attrs);
  int64_t at = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    place(i, whole.view_as(call[i].extents(), whole.strides(), whole.offset() + at * whole.strides()[dim]));
    at += call[i].extents()[dim];
  }
}

void cat_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const int64_t dim = c.attrs.as<CatAttrs>().dim;
  SymInt at = 0;
  for (size_t i = 0; i < grads.size(); ++i) {
    const SymInt size = c.input_metas[i].sizes[static_cast<size_t>(dim)];
    if (c.needs(static_cast<int>(i))) grads[i] = narrow(c.grads[0], dim, at, size);
    at += size;
  }
}

std::string cat_sharding(const OpCall& call) {
  std::string letters = facets::dim_letters(call[0].ndim());
  letters[dim_of(call.attrs)] = 'Z';
  std::string text;
  for (size_t i = 0; i < call.inputs.size(); ++i) text += fmt::format("x{}[{}] ", i, letters);
  return fmt::format("{}-> y[{}] | | id", text, letters);
}

std::vector<Sample> cat_samples() {
  const auto x = [](uint64_t seed, const Extents& sizes, DType dtype = DType::f32) {
    return facets::sample_tensor(seed, sizes, dtype);
  };
  return {{"rows", {x(1, {3, 5}), x(2, {2, 5}), x(3, {1, 5})}, Attrs::of(CatAttrs{0})},
          {"columns_bf16", {x(4, {3, 5}, DType::bf16), x(5, {3, 7}, DType::bf16)}, Attrs::of(CatAttrs{1})},
          {"with_empty", {x(6, {0, 2}), x(7, {3, 2}), x(8, {0, 2})}, Attrs::of(CatAttrs{0})},
          {"strided_middle", {facets::strided_copy(x(9, {2, 3, 4})), x(10, {2, 1, 4})}, Attrs::of(CatAttrs{1})},
          {"one_i64", {x(11, {4}, DType::i64)}, Attrs::of(CatAttrs{0})},
          {"bool", {x(12, {4}, DType::boolean), x(13, {5}, DType::boolean)}, Attrs::of(CatAttrs{0})}};
}

const OpDef kCat{
    .name = "cat",
    .num_inputs = -1,
    .infer = infer_cat,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          for_each_part(call, outputs[0], [&](size_t i, const Tensor& part) {
            facets::for_each_index(part.extents(),
                                   [&](const Extents& at) { facets::move_element(part, at, call[i], at); });
          });
        },
    .gradient = {.vjp = cat_vjp},
    // A kernel and not a recipe: each input has index ranges of its own.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          for_each_part(call, outputs[0], [&](size_t i, const Tensor& part) { facets::raw_copy(part, call[i]); });
        },
    .sharding = cat_sharding,
    .samples = cat_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int64_t dim) {
  TUTTI_CHECK(!tensors.empty(), "cat: the list of tensors is empty; give at least one");
  TUTTI_CHECK(tensors[0].defined() && tensors[0].ndim() > 0, "cat: tensor 0 is {}; use stack for tensors without dims",
              describe(tensors[0]));
  return apply1(kCat, tensors, Attrs::of(CatAttrs{normalize_dim(dim, tensors[0].ndim(), "cat")}));
}
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim) {
  return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}

Tensor stack(std::span<const Tensor> tensors, int64_t dim) {
  TUTTI_CHECK(!tensors.empty(), "stack: the list of tensors is empty; give at least one");
  const int at = normalize_dim(dim, tensors[0].ndim() + 1, "stack");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    TUTTI_CHECK(x.sizes() == tensors[0].sizes(), "stack: the tensors {} and {} differ in size", describe(tensors[0]),
                describe(x));
    rows.push_back(unsqueeze(x, at));
  }
  return cat(rows, at);
}
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim) {
  return stack(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}

}  // namespace tutti

TUTTI_OPS(cat, &kCat)
