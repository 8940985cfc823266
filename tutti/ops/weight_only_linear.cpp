#include "tutti/ops/weight_only_linear.h"

#include <cmath>

#include "tutti/codegen/codes/weight_only_product.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scaled/scales.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

struct WeightOnlyAttrs {
  DType dtype;
  static constexpr auto fields() { return field_list(field::output_dtype<&WeightOnlyAttrs::dtype>("dtype")); }
};

bool has_groups(const OpCall& call) { return call[1].dtype() == DType::u8; }
int64_t group_of(const OpCall& call) {
  const int64_t groups = call[2].extents()[call[2].ndim() - 1];
  return has_groups(call) && groups > 0 ? call[0].extents()[1] / groups : 0;
}

void infer(const OpCall& call, OutputMetas& out) {
  out.add(call.attrs.as<WeightOnlyAttrs>().dtype, {call[0].sizes()[0], call[1].sizes()[0]});
}

// A kernel and not a recipe: the tiles of a product.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  KernelTrace::note_extern(call.op, [&] {
    return fmt::format("{}-bit weights, {}", has_groups(call) ? 4 : 8,
                       name_of(codegen::without_dots(codegen::cpu_target())));
  });
  const Tensor x = to_contiguous(call[0]), scale = to_contiguous(call[2]), minimum = to_contiguous(call[3]);
  const bool is_dense = call[1].extents()[1] <= 1 || call[1].strides()[1] == 1;
  const Tensor w = is_dense ? call[1] : to_contiguous(call[1]), &y = outputs[0];
  codegen::weight_only_product({.m = x.extents()[0],
                                .n = y.extents()[1],
                                .k = x.extents()[1],
                                .x = x.raw_data(),
                                .x_dtype = x.dtype(),
                                .w = static_cast<const std::byte*>(w.raw_data()),
                                .w_stride = w.strides()[0],
                                .has_nibbles = has_groups(call),
                                .group = group_of(call),
                                .scale = {scale.data<float>(), scale.numel() == 1 && !has_groups(call) ? 0 : 1},
                                .minimum = minimum.numel() == 0 ? nullptr : minimum.data<float>(),
                                .y = y.raw_data(),
                                .y_dtype = y.dtype()},
                               ThreadPool::current());
}

// ---- the definition in plain loops

float weight_at(const OpCall& call, int64_t j, int64_t p) {
  const Tensor& w = call[1];
  const auto code = [&](int64_t column) { return facets::read_int64(w, j * w.strides()[0] + column * w.strides()[1]); };
  if (!has_groups(call)) return static_cast<float>(code(p));
  const auto of_group = [&](const Tensor& t) {
    return static_cast<float>(facets::read_double(t, j * t.strides()[0] + p / group_of(call) * t.strides()[1]));
  };
  return std::fma(static_cast<float>(p % 2 == 0 ? code(p / 2) & 15 : code(p / 2) >> 4), of_group(call[2]),
                  of_group(call[3]));
}

float sum_in_tree(const OpCall& call, int64_t i, int64_t j, int64_t begin, int64_t end) {
  if (end - begin > codegen::contraction_leaf()) {
    const int64_t middle = begin + (end - begin + 1) / 2;
    return sum_in_tree(call, i, j, begin, middle) + sum_in_tree(call, i, j, middle, end);
  }
  const Tensor& x = call[0];
  float sum = -0.0F;
  for (int64_t p = begin; p < end; ++p)
    sum = std::fma(static_cast<float>(facets::read_double(x, i * x.strides()[0] + p * x.strides()[1])),
                   weight_at(call, j, p), sum);
  return sum;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &y = outputs[0], &scale = call[2];
  for (int64_t i = 0; i < y.extents()[0]; ++i)
    for (int64_t j = 0; j < y.extents()[1]; ++j) {
      float value = sum_in_tree(call, i, j, 0, call[0].extents()[1]);
      if (!has_groups(call))
        value *= static_cast<float>(facets::read_double(scale, scale.numel() == 1 ? 0 : j * scale.strides()[0]));
      facets::write_double(y, i * y.strides()[0] + j * y.strides()[1], value);
    }
}

std::string sharding(const OpCall& call) {
  if (has_groups(call)) return "#x[mK] #w[nB] #s[nG] #t[nG] -> y[mn]";
  return fmt::format("#x[mK] #w[nK] #s[{}] #t[E] -> y[mn]", call[2].numel() == 1 ? "1" : "n");
}

Cost cost(const OpCall& call) {
  const double m = static_cast<double>(call[0].extents()[0]), n = static_cast<double>(call[1].extents()[0]),
               k = static_cast<double>(call[0].extents()[1]);
  return {2 * m * n * k, static_cast<double>(call[0].nbytes() + call[1].nbytes() + call[2].nbytes()) +
                             m * n * static_cast<double>(itemsize(call.attrs.as<WeightOnlyAttrs>().dtype))};
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  const auto add = [&](const char* name, int64_t m, int64_t n, int64_t k, int64_t group, DType x, bool is_per_row) {
    const auto numbers = [](uint64_t seed, const Extents& sizes) {
      return facets::sample_tensor(seed, sizes, DType::f32, 0.01, 0.05);
    };
    const Tensor codes = group > 0 ? facets::sample_tensor(2, {n, k / 2}, DType::u8, 0, 256)
                                   : facets::sample_tensor(2, {n, k}, DType::i8, -128, 128);
    all.push_back({name,
                   {facets::sample_tensor(1, {m, k}, x), codes,
                    group > 0 ? numbers(3, {n, k / group}) : numbers(3, {is_per_row ? n : 1}),
                    group > 0 ? facets::sample_tensor(4, {n, k / group}) : scaled::nothing(DType::f32)},
                   Attrs::of(WeightOnlyAttrs{x})});
  };
  add("int8", 3, 19, 37, 0, DType::f32, true);
  add("one_scale", 1, 7, 300, 0, DType::f16, false);
  add("int4", 5, 18, 64, 32, DType::f32, true);
  add("int4_of_8", 2, 3, 136, 8, DType::bf16, true);
  add("no_rows", 0, 4, 16, 16, DType::f32, true);
  add("no_inner", 2, 5, 0, 0, DType::f32, true);
  add("int4_no_inner", 2, 5, 0, 8, DType::f32, true);
  return all;
}

const OpDef kWeightOnlyLinear{.name = "weight_only_linear",
                              .num_inputs = 4,
                              .infer = infer,
                              .reference = reference,
                              .gradient = {.none = "the weight is rounded to few bits; use linear() with numbers"},
                              .kernel = kernel,
                              .sharding = sharding,
                              .recompute = Recompute::costly,
                              .cost = cost,
                              .samples = samples,
                              .tolerance = {.f32 = 0}};

bool is_number(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

void check_groups(const CodedWeight& weight, const SymInt& in) {
  const auto& [codes, scale, minimum] = weight;
  const bool fits = scale.defined() && scale.dtype() == DType::f32 && scale.ndim() == 2 && minimum.defined() &&
                    minimum.dtype() == DType::f32 && minimum.sizes() == scale.sizes() && scale.size(0) == codes.size(0);
  TUTTI_CHECK(fits,
              "weight_only_linear: the codes of 4 bits are {}, their scales {}, their minima {}; expected f32 [{}, "
              "groups] twice",
              codes.sizes(), describe(scale), describe(minimum), codes.size(0));
  const int64_t groups = scale.extent(1), k = codes.extent(1) * 2;
  TUTTI_CHECK(k == 0 || (groups > 0 && k % groups == 0 && k / groups % 8 == 0),
              "weight_only_linear: {} groups of rows of {} elements; expected groups of a multiple of 8", groups, in);
}

}  // namespace

Tensor weight_only_linear(const Tensor& x, const CodedWeight& weight, std::optional<DType> out_dtype) {
  const auto& [codes, scale, minimum] = weight;
  TUTTI_CHECK(codes.defined() && codes.ndim() == 2 && (codes.dtype() == DType::i8 || codes.dtype() == DType::u8),
              "weight_only_linear: the codes are {}; expected i8 [out, in] or u8 [out, in / 2]", describe(codes));
  const bool has_nibbles = codes.dtype() == DType::u8;
  const SymInt in = has_nibbles ? codes.size(1) * 2 : codes.size(1);
  TUTTI_CHECK(x.defined() && x.ndim() >= 1 && is_number(x.dtype()) && x.size(-1) == in,
              "weight_only_linear: x is {}; expected f32, bf16 or f16 [..., {}]", describe(x), in);
  if (has_nibbles) {
    check_groups(weight, in);
  } else {
    scaled::check_scale("weight_only_linear", scale, "the weight", codes.size(0));
    TUTTI_CHECK(!minimum.defined(), "weight_only_linear: codes of 8 bits have no minimum, it is {}", describe(minimum));
  }
  const DType dtype = out_dtype.value_or(x.dtype());
  TUTTI_CHECK(is_number(dtype), "weight_only_linear: a result of {}; expected f32, bf16 or f16", name_of(dtype));
  const Tensor none = beside(x, scaled::nothing(DType::f32));
  const Tensor y = call_op(kWeightOnlyLinear, Attrs::of(WeightOnlyAttrs{dtype}), scaled::as_rows(x), codes,
                           has_nibbles ? scale : scaled::flat(scale, DType::f32, x), has_nibbles ? minimum : none);
  if (x.ndim() == 2) return y;
  Shape sizes = x.sizes();
  sizes.back() = codes.size(0);
  return reshape(y, sizes);
}

}  // namespace tutti

TUTTI_OPS(weight_only_linear, &kWeightOnlyLinear)
