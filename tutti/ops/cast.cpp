#include "tutti/ops/cast.h"

#include <cstring>

#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

struct CastAttrs {
  DType dtype;
  static constexpr auto fields() { return field_list(field::output_dtype<&CastAttrs::dtype>("dtype")); }
};

DType target_of(const OpCall& call) { return call.attrs.as<CastAttrs>().dtype; }
void infer_cast(const OpCall& call, OutputMetas& out) { out.add(target_of(call), call[0].sizes()); }

// ---- cast -----------------------------------------------------------------------------------------------------------

void cast_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  facets::for_each_element(x.extents(), call.inputs, [&](int64_t i, const int64_t* at) {
    // int64 to f32 rounds once, not through double.
    if (!is_floating(x.dtype()) && compute_dtype(outputs[0].dtype()) == DType::f32)
      facets::write_double(outputs[0], i, static_cast<float>(facets::read_int64(x, at[0])));
    else if (!is_floating(x.dtype())) facets::write_int64(outputs[0], i, facets::read_int64(x, at[0]));
    else facets::write_double(outputs[0], i, facets::read_double(x, at[0]));
  });
}

std::string cast_sharding(const OpCall& call) {
  const DType from = call[0].dtype(), to = target_of(call);
  const bool widens = is_floating(from) && is_floating(to) && itemsize(to) > itemsize(from);
  // Not so for integers: NaN and what is out of range become the smallest one, above which they were.
  const char* partial = widens ? "| lin up | up" : "|";
  return facets::pointwise_sharding(call, partial);
}

std::vector<Sample> cast_samples() {
  std::vector<Sample> samples;
  for (int from = 0; from < kNumDTypes; ++from) {
    for (int to = 0; to < kNumDTypes; ++to) {
      if (from == to) continue;
      const DType a = static_cast<DType>(from), b = static_cast<DType>(to);
      const double lo = a == DType::boolean || a == DType::u8 ? 0.0 : -100.0, hi = a == DType::boolean ? 2.0 : 100.0;
      samples.push_back({fmt::format("{}_to_{}", name_of(a), name_of(b)),
                         {facets::sample_tensor(5, {3, 13}, a, lo, hi)},
                         Attrs::of(CastAttrs{b})});
    }
  }
  const Tensor edges = Tensor::of<float>({0.0f, -0.0f, 1e-41f, 3e38f, -3e38f, 1e10f, -1e19f, 1e19f, 0.5f, -0.9f});
  for (const DType to :
       {DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2, DType::i64, DType::i32, DType::u8, DType::boolean})
    samples.push_back({fmt::format("edges_to_{}", name_of(to)), {edges}, Attrs::of(CastAttrs{to})});
  const Tensor x = facets::sample_tensor(6, {4, 9});
  samples.push_back({"strided", {facets::strided_copy(x)}, Attrs::of(CastAttrs{DType::bf16})});
  samples.push_back({"empty", {facets::sample_tensor(6, {0, 3})}, Attrs::of(CastAttrs{DType::f64})});
  samples.push_back({"scalar", {facets::sample_tensor(6, {})}, Attrs::of(CastAttrs{DType::f64})});
  return samples;
}

const OpDef kCast{
    .name = "cast",
    .num_inputs = 1,
    .infer = infer_cast,
    .reference = cast_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       if (is_floating(c.attrs.as<CastAttrs>().dtype) && is_floating(c.input_metas[0].dtype))
                         grads[0] = cast(c.grads[0], c.input_metas[0].dtype);
                     }},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(cast(b.in(0), compute_dtype(b.output_dtypes[0]))); }},
    .sharding = cast_sharding,
    .samples = cast_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- bitcast --------------------------------------------------------------------------------------------------------

std::vector<Sample> bitcast_samples() {
  const auto sample = [](DType from, DType to) {
    return Sample{fmt::format("{}_as_{}", name_of(from), name_of(to)),
                  {facets::sample_tensor(7, {3, 5}, from, 0, 2)},
                  Attrs::of(CastAttrs{to})};
  };
  std::vector<Sample> samples{sample(DType::f32, DType::i32), sample(DType::i64, DType::f64),
                              sample(DType::bf16, DType::i16), sample(DType::u8, DType::f8e4m3fn)};
  samples.push_back(
      {"strided", {facets::strided_copy(facets::sample_tensor(8, {4, 3}))}, Attrs::of(CastAttrs{DType::i32})});
  samples.push_back({"empty", {facets::sample_tensor(8, {0})}, Attrs::of(CastAttrs{DType::i32})});
  return samples;
}

const OpDef kBitcast{
    .name = "bitcast",
    .num_inputs = 1,
    .infer = infer_cast,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const int64_t item = itemsize(call[0].dtype());
          facets::for_each_element(call[0].extents(), call.inputs, [&](int64_t i, const int64_t* at) {
            std::memcpy(static_cast<char*>(outputs[0].raw_data()) + i * item,
                        static_cast<const char*>(call[0].raw_data()) + at[0] * item, static_cast<size_t>(item));
          });
        },
    .gradient = {.none = "the bits of a number are not a differentiable function of it"},
    .view =
        [](const OpCall& call) {
          const Tensor& x = call[0];
          return Tensor::over(x.storage(), x.extents(), x.strides(), x.offset(), target_of(call));
        },
    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "|", 1); },
    .samples = bitcast_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : call_op(kCast, Attrs::of(CastAttrs{dtype}), x);
}

Tensor bitcast(const Tensor& x, DType dtype) {
  TUTTI_CHECK(itemsize(x.dtype()) == itemsize(dtype),
              "bitcast: {} has {} bytes per element, {} has {}; the item sizes must agree (cast() converts values)",
              describe(x), itemsize(x.dtype()), name_of(dtype), itemsize(dtype));
  return x.dtype() == dtype ? x : call_op(kBitcast, Attrs::of(CastAttrs{dtype}), x);
}

}  // namespace tutti

TUTTI_OPS(cast, &kCast, &kBitcast)
