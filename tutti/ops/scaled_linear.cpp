#include "tutti/ops/scaled_linear.h"

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/int8.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scaled/call.h"
#include "tutti/ops/scaled/scales.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using codegen::is_code;
using scaled::flat;
using scaled::kInputsOfWeight;
using scaled::kSharedInputs;
using scaled::nothing;
using scaled::ScaledLinearAttrs;

const ScaledLinearAttrs& attrs_of(const OpCall& call) { return call.attrs.as<ScaledLinearAttrs>(); }

void infer(const OpCall& call, OutputMetas& out) {
  for (size_t first = kSharedInputs; first < call.inputs.size(); first += kInputsOfWeight)
    out.add(attrs_of(call).dtype, {call[0].sizes()[0], call[first].sizes()[0]});
}

// A kernel and not a recipe: the tiles of a product.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  KernelTrace::note_extern(call.op, [&] {
    const DType codes = call[kSharedInputs].dtype();
    const bool has_units =
        codes == DType::i8 && codegen::int8_items(codegen::cpu_target()) == codegen::Int8Items::quads;
    const codegen::CpuTarget without = without_dots(codegen::cpu_target());
    return fmt::format("{} codes, {} weights, {}", name_of(codes), outputs.size(),
                       name_of(has_units ? codegen::CpuTarget::avx512vnni : without));
  });
  codegen::scaled_product(scaled::ScaledCall(call, outputs).product, ThreadPool::current());
}

// Some of the rows of x or of a weight, whole: the scale of a row of x must not depend on the layout.
std::string sharding(const OpCall& call) {
  const auto of_rows = [](const Tensor& t, char letter, int64_t rows) {
    return t.numel() == rows && rows != 1 ? std::string(1, letter) : t.numel() == 1 ? "1" : "E";
  };
  std::string inputs =
      fmt::format("#x[mK] #s[{}] #z[{}]", of_rows(call[1], 'm', call[0].extents()[0]), of_rows(call[2], 'm', -1));
  std::string outputs;
  for (size_t first = kSharedInputs; first < call.inputs.size(); first += kInputsOfWeight) {
    const size_t i = (first - kSharedInputs) / kInputsOfWeight;
    // The features of one of several results cannot be cut alone.
    const char n = static_cast<char>((call.inputs.size() == kSharedInputs + kInputsOfWeight ? 'a' : 'A') + i);
    const int64_t rows = call[first].extents()[0];
    inputs += fmt::format(" #w{0}[{1}K] #t{0}[{2}] #b{0}[{3}] #o{0}[{4}] #p{0}[{5}]", i, n,
                          of_rows(call[first + 1], n, rows), of_rows(call[first + 2], n, rows),
                          of_rows(call[first + 3], n, -1), of_rows(call[first + 4], n, -1));
    outputs += fmt::format(" y{}[m{}]", i, n);
  }
  return fmt::format("{} ->{}", inputs, outputs);
}

Cost cost(const OpCall& call) {
  const auto m = static_cast<double>(call[0].extents()[0]), k = static_cast<double>(call[0].extents()[1]);
  double columns = 0;
  for (size_t first = kSharedInputs; first < call.inputs.size(); first += kInputsOfWeight)
    columns += static_cast<double>(call[first].extents()[0]);
  return {2 * m * k * columns, static_cast<double>(call[0].nbytes()) + k * columns +
                                   m * columns * static_cast<double>(itemsize(attrs_of(call).dtype))};
}

struct SampleCase {
  const char* name;
  DType w, x, x_codes, y;
  int64_t m, k;
  bool per_row, has_zero_point, per_column, has_bias;
};

std::vector<Sample> samples(int weights) {
  using enum DType;
  std::vector<Sample> all;
  for (const SampleCase& c : {SampleCase{"dynamic", i8, f32, i8, f32, 3, 40, false, false, true, true},
                              {"one_row", i8, bf16, i8, bf16, 1, 33, false, false, true, false},
                              {"tokens", i8, i8, i8, f32, 7, 16, true, false, true, false},
                              {"affine", i8, u8, u8, u8, 9, 35, false, true, false, true},
                              {"static", i8, f32, u8, i8, 5, 20, false, true, true, false},
                              {"fp8", f8e4m3fn, f8e4m3fn, f8e4m3fn, f8e4m3fn, 4, 150, false, false, false, true},
                              {"fp8_dynamic", f8e4m3fn, f16, f8e4m3fn, f32, 2, 31, false, false, true, false},
                              {"no_rows", i8, f32, i8, f32, 0, 8, false, false, true, false},
                              {"no_inner", i8, f32, i8, f32, 2, 0, false, false, true, true}}) {
    const auto codes = [](uint64_t seed, DType dtype, const Extents& sizes) {
      const bool is_fp8 = dtype == f8e4m3fn;
      return facets::sample_tensor(seed, sizes, dtype, dtype == u8 || is_fp8 ? (is_fp8 ? -8 : 0) : -128,
                                   dtype == u8 ? 256
                                   : is_fp8    ? 8
                                               : 128);
    };
    const bool is_dynamic = !is_code(c.x) && !c.has_zero_point;
    const auto scales = [](uint64_t seed, int64_t count) {
      return facets::sample_tensor(seed, {count}, f32, 0.01, 0.05);
    };
    Sample sample{c.name, {}, Attrs::of(ScaledLinearAttrs{c.x_codes, c.y})};
    sample.inputs = {is_code(c.x) ? codes(1, c.x, {c.m, c.k}) : facets::sample_tensor(1, {c.m, c.k}, c.x),
                     is_dynamic ? nothing(f32) : scales(2, c.per_row ? c.m : 1),
                     c.has_zero_point ? facets::sample_tensor(3, {1}, i32, 100, 120) : nothing(i32)};
    for (int i = 0; i < weights; ++i) {
      const int64_t n = i == 0 ? 19 : 4 + i;
      const uint64_t seed = 10 * static_cast<uint64_t>(i + 1);
      for (Tensor& t :
           std::vector<Tensor>{codes(seed, c.w, {n, c.k}), scales(seed + 1, c.per_column ? n : 1),
                               c.has_bias ? facets::sample_tensor(seed + 2, {n}) : nothing(f32),
                               is_code(c.y) ? scales(seed + 3, 1) : nothing(f32),
                               c.y == u8 ? facets::sample_tensor(seed + 4, {1}, i32, 100, 140) : nothing(i32)})
        sample.inputs.push_back(t);
    }
    all.push_back(std::move(sample));
  }
  return all;
}

extern const OpDef kScaledLinear, kScaledLinear2, kScaledLinear3, kScaledLinear4;

const SiblingOps kSiblings{
    .ops = {&kScaledLinear2, &kScaledLinear3, &kScaledLinear4},
    .shared_inputs = kSharedInputs,
    .apart = [](const OpCall& a, const OpCall& b) -> const char* {
      return a[kSharedInputs].dtype() == b[kSharedInputs].dtype() ? nullptr : "their weights have different dtypes";
    }};

template <int kWeights>
constexpr OpDef product(const char* name) {
  return {.name = name,
          .num_inputs = kSharedInputs + kWeights * kInputsOfWeight,
          .num_outputs = kWeights,
          .infer = infer,
          .reference = scaled::reference,
          .gradient = {.none = "x and the weights are rounded to 8 bits; use linear() with numbers"},
          .check = scaled::check_scales,
          .kernel = kernel,
          .siblings = kWeights == 1 ? &kSiblings : nullptr,
          .sharding = sharding,
          .recompute = Recompute::costly,
          .cost = cost,
          .samples = [] { return samples(kWeights); },
          .tolerance = {.f32 = 0}};
}

const OpDef kScaledLinear = product<1>("scaled_linear");
const OpDef kScaledLinear2 = product<2>("scaled_linear_2");
const OpDef kScaledLinear3 = product<3>("scaled_linear_3");
const OpDef kScaledLinear4 = product<4>("scaled_linear_4");

bool is_result(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

Tensor scaled_linear(const Tensor& x, const ScaledWeight& weight, const ScaledLinearOptions& options) {
  using namespace scaled;
  constexpr const char* kName = "scaled_linear";
  const auto& [w, scale, bias] = weight;
  TUTTI_CHECK(w.defined() && w.ndim() == 2 && (w.dtype() == DType::i8 || w.dtype() == DType::f8e4m3fn),
              "scaled_linear: the weight is {}; expected i8 or f8e4m3fn [out, in]", describe(w));
  TUTTI_CHECK(x.defined() && x.ndim() >= 1 && x.size(-1) == w.size(1),
              "scaled_linear: x is {}, the weight {}; expected x [..., {}]", describe(x), w.sizes(), w.size(1));
  const bool is_fp8 = w.dtype() == DType::f8e4m3fn;
  const DType x_codes = is_code(x.dtype()) ? x.dtype() : is_fp8 ? DType::f8e4m3fn : options.x_codes;
  TUTTI_CHECK(
      (is_result(x.dtype()) || is_code(x.dtype())) && is_code(x_codes) && (x_codes == DType::f8e4m3fn) == is_fp8,
      "scaled_linear: x is {}, rounded to {}, and the weight {}; expected f32, bf16, f16 or {}", describe(x),
      name_of(x_codes), name_of(w.dtype()), is_fp8 ? "f8e4m3fn" : "codes of i8 or u8");
  TUTTI_CHECK(is_fp8 || w.extent(1) <= codegen::kMostIntegerTerms,
              "scaled_linear: rows of {} codes; the exact sum of more than {} may not fit 32 bits", w.size(1),
              codegen::kMostIntegerTerms);
  const Tensor rows = as_rows(x);
  TUTTI_CHECK(!is_code(x.dtype()) || options.x.defined(), "scaled_linear: x is codes of {} without a scale",
              name_of(x.dtype()));
  TUTTI_CHECK(options.x.defined() || (x_codes != DType::u8 && !options.x.zero_point.defined()),
              "scaled_linear: rows without a scale are rounded to i8 or f8e4m3fn around 0; give a scale with the zero "
              "point, or codes of u8");
  if (options.x.defined()) check_scale(kName, options.x.scale, "x", rows.size(0));
  check_scale(kName, scale, "the weight", w.size(0));
  TUTTI_CHECK(!bias.defined() || (bias.dtype() == DType::f32 && bias.ndim() == 1 && bias.size(0) == w.size(0)),
              "scaled_linear: the bias is {}; expected f32 [{}]", describe(bias), w.size(0));
  const bool makes_codes = options.out.defined();
  const DType dtype = options.out_dtype.value_or(makes_codes ? x_codes : is_code(x.dtype()) ? DType::f32 : x.dtype());
  TUTTI_CHECK(makes_codes ? is_code(dtype) : is_result(dtype), "scaled_linear: a result of {} {} a scale; expected {}",
              name_of(dtype), makes_codes ? "with" : "without",
              makes_codes ? "i8, u8 or f8e4m3fn" : "f32, bf16 or f16");
  if (makes_codes) check_scale(kName, options.out.scale, "the result", 1);
  check_zero_point(kName, options.x, "x", x_codes);
  check_zero_point(kName, options.out, "the result", dtype);
  const Tensor inputs[] = {rows,
                           flat(options.x.scale, DType::f32, x),
                           flat(options.x.zero_point, DType::i32, x),
                           w,
                           flat(scale, DType::f32, x),
                           flat(bias, DType::f32, x),
                           flat(options.out.scale, DType::f32, x),
                           flat(options.out.zero_point, DType::i32, x)};
  const Tensor y = apply1(kScaledLinear, inputs, Attrs::of(ScaledLinearAttrs{x_codes, dtype}));
  if (x.ndim() == 2) return y;
  Shape sizes = x.sizes();
  sizes.back() = w.size(0);
  return reshape(y, sizes);
}

}  // namespace tutti

TUTTI_OPS(scaled_linear, &kScaledLinear, &kScaledLinear2, &kScaledLinear3, &kScaledLinear4)
