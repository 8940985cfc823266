#include "tutti/ops/random.h"

#include <cmath>
#include <numbers>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/philox_words.h"

namespace tutti {
namespace {

// The numbers a and b are (low, high - low), (mean, deviation) or integers (low, high - low).
struct RandomAttrs {
  Shape sizes;
  RandomKey key;
  DType dtype;
  double a, b;
  static constexpr auto fields() {
    return field_list(field::size<&RandomAttrs::sizes>("sizes"), field::random_key<&RandomAttrs::key>("key"),
                      field::output_dtype<&RandomAttrs::dtype>("dtype"), field::number<&RandomAttrs::a>("a"),
                      field::number<&RandomAttrs::b>("b"));
  }
};

const RandomAttrs& attrs_of(const OpCall& call) { return call.attrs.as<RandomAttrs>(); }

void infer_random(const OpCall& call, OutputMetas& out) { out.add(attrs_of(call).dtype, attrs_of(call).sizes); }

uint64_t random_variant(const OpCall& call) { return facets::key_variant(attrs_of(call).key); }

int float_params(const OpCall& call, codegen::ParamValue* params) {
  facets::write_key(attrs_of(call).key, params);
  params[facets::kKeyParams].f = attrs_of(call).a;
  params[facets::kKeyParams + 1].f = attrs_of(call).b;
  return facets::kKeyParams + 2;
}

std::string random_sharding(const OpCall& call) {
  return fmt::format("-> y[{}]", facets::dim_letters(attrs_of(call).sizes.ndim()));
}

Attrs local_random(const OpCall& call, const LocalBox& part) {
  RandomAttrs a = attrs_of(call);
  a.key = part_of(a.key, concrete(a.sizes), part.sizes, part.offsets);
  a.sizes = to_shape(part.sizes);
  return Attrs::of(a);
}

template <class Value>
void fill_by_index(const OpCall& call, const Tensor& out, Value value) {
  const RandomKey& key = attrs_of(call).key;
  for (int64_t i = 0; i < out.numel(); ++i) value(i, key, key.index_of(i));
}

std::vector<Sample> random_samples(std::initializer_list<DType> dtypes, double a, double b) {
  const RandomKey plain{.key = 0x1234567890abcdef}, late{.key = 42, .step = 7, .virtual_shard = 3, .first_index = 5};
  const RandomKey column{.key = 9, .first_index = 2, .run_length = 3, .run_stride = 8};
  std::vector<Sample> samples;
  for (const DType dtype : dtypes) {
    const auto attrs = [&](const Shape& sizes, const RandomKey& key) {
      return Attrs::of(RandomAttrs{sizes, key, dtype, a, b});
    };
    const std::string suffix(name_of(dtype));
    samples.push_back({"odd_" + suffix, {}, attrs({3, 37}, plain)});
    samples.push_back({"late_" + suffix, {}, attrs({19}, late)});
    samples.push_back({"column_" + suffix, {}, attrs({7, 3}, column)});
    samples.push_back({"empty_" + suffix, {}, attrs({0, 2}, plain)});
  }
  return samples;
}

// ---- uniform --------------------------------------------------------------------------------------------------------

// A word as a float in [0, 1): the top 24 bits, which f32 holds exactly; for f64 all 32.
Expr unit_interval(Expr word, DType dtype) {
  if (dtype == DType::f64) return cast(word, dtype) * 0x1p-32;
  const Expr eight = word.pool()->constant_int(8, DType::i64);
  return cast(cast(apply_scalar(ScalarOp::shr, word, eight), DType::i32), dtype) * 0x1p-24;
}
double unit_interval(uint32_t word, DType dtype) {
  return dtype == DType::f64 ? word * 0x1p-32 : (word >> 8) * 0x1p-24;
}

const OpDef kUniform{
    .name = "uniform",
    .num_inputs = 0,
    .infer = infer_random,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const DType dtype = compute_dtype(outputs[0].dtype());
          fill_by_index(call, outputs[0], [&](int64_t i, const RandomKey& key, int64_t index) {
            const double u = unit_interval(facets::random_word(key, index), dtype);
            facets::write_double(outputs[0], i, attrs_of(call).a + u * attrs_of(call).b);
          });
        },
    .gradient = {.none = "it has no input"},
    .recipe = {.build =
                   [](RecipeBuilder& b) {
                     const DType dtype = compute_dtype(b.output_dtypes[0]);
                     const Expr word = facets::random_word(b, facets::global_index(b, attrs_of(b.call).key));
                     const Expr low = b.param(facets::kKeyParams, dtype), span = b.param(facets::kKeyParams + 1, dtype);
                     b.out(low + unit_interval(word, dtype) * span);
                   },
               .params = float_params,
               .variant = random_variant},
    .sharding = random_sharding,
    .local_attrs = local_random,
    .samples = [] { return random_samples({DType::f32, DType::bf16, DType::f64}, -0.5, 2.0); },
};

// ---- normal ---------------------------------------------------------------------------------------------------------

// z = sqrt(-2 log u) cos(2 pi (v - s / 4)), s = index mod 2: the cosine and, for odd elements, the sine of one angle. u
// comes from the even word of the pair and lies in (0, 1], v from the odd one.
void build_normal(RecipeBuilder& b) {
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  const auto whole = [&](int64_t value) { return b.pool.constant_int(value, DType::i64); };
  const Expr index = facets::global_index(b, attrs_of(b.call).key);
  const Expr odd = apply_scalar(ScalarOp::bit_and, index, whole(1));
  const Expr even_word = facets::random_word(b, apply_scalar(ScalarOp::bit_and, index, whole(-2)));
  const Expr odd_word = facets::random_word(b, apply_scalar(ScalarOp::bit_or, index, whole(1)));
  const Expr u =
      dtype == DType::f64
          ? (cast(even_word, dtype) + 1.0) * 0x1p-32
          : (cast(cast(apply_scalar(ScalarOp::shr, even_word, whole(1)), DType::i32), dtype) + 1.0) * 0x1p-31;
  const Expr turn = unit_interval(odd_word, dtype) - cast(cast(odd, DType::i32), dtype) * 0.25;
  const Expr radius = apply_scalar(ScalarOp::sqrt, apply_scalar(ScalarOp::log, u) * -2.0);
  const Expr z = radius * apply_scalar(ScalarOp::cos, turn * (2.0 * std::numbers::pi));
  b.out(b.param(facets::kKeyParams, dtype) + z * b.param(facets::kKeyParams + 1, dtype));
}

void normal_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const DType dtype = compute_dtype(outputs[0].dtype());
  fill_by_index(call, outputs[0], [&](int64_t i, const RandomKey& key, int64_t index) {
    const uint32_t even_word = facets::random_word(key, index - index % 2);
    const uint32_t odd_word = facets::random_word(key, index - index % 2 + 1);
    const double u =
        dtype == DType::f64 ? (even_word + 1.0) * 0x1p-32 : (static_cast<float>(even_word >> 1) + 1.0f) * 0x1p-31f;
    const double turn = unit_interval(odd_word, dtype) - 0.25 * static_cast<double>(index % 2);
    const double z = std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * turn);
    facets::write_double(outputs[0], i, attrs_of(call).a + z * attrs_of(call).b);
  });
}

const OpDef kNormal{
    .name = "normal",
    .num_inputs = 0,
    .infer = infer_random,
    .reference = normal_reference,
    .gradient = {.none = "it has no input"},
    .recipe = {.build = build_normal, .params = float_params, .variant = random_variant},
    .sharding = random_sharding,
    .local_attrs = local_random,
    .samples = [] { return random_samples({DType::f32, DType::bf16, DType::f64}, 0.5, 1.5); },
    // In f32 the angle is rounded before its cosine is taken: 2 pi * 2^-24 of the radius.
    .tolerance = {.f32 = 1e-5},
};

// ---- randint --------------------------------------------------------------------------------------------------------

const OpDef kRandint{
    .name = "randint",
    .num_inputs = 0,
    .infer = infer_random,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const int64_t low = static_cast<int64_t>(attrs_of(call).a);
          const uint64_t span = static_cast<uint64_t>(attrs_of(call).b);
          fill_by_index(call, outputs[0], [&](int64_t i, const RandomKey& key, int64_t index) {
            facets::write_int64(outputs[0], i,
                                low + static_cast<int64_t>(facets::random_word(key, index) * span >> 32));
          });
        },
    .gradient = {.none = "it has no input"},
    .recipe = {.build =
                   [](RecipeBuilder& b) {
                     const Expr word = facets::random_word(b, facets::global_index(b, attrs_of(b.call).key));
                     const Expr scaled = word * b.param(facets::kKeyParams + 1, DType::i64);
                     const Expr bits = b.pool.constant_int(32, DType::i64);
                     const Expr value =
                         b.param(facets::kKeyParams, DType::i64) + apply_scalar(ScalarOp::shr, scaled, bits);
                     b.out(cast(value, b.output_dtypes[0]));
                   },
               .params =
                   [](const OpCall& call, codegen::ParamValue* params) {
                     facets::write_key(attrs_of(call).key, params);
                     params[facets::kKeyParams].i = static_cast<int64_t>(attrs_of(call).a);
                     params[facets::kKeyParams + 1].i = static_cast<int64_t>(attrs_of(call).b);
                     return facets::kKeyParams + 2;
                   },
               .variant = random_variant},
    .sharding = random_sharding,
    .local_attrs = local_random,
    .samples = [] { return random_samples({DType::i64, DType::i32}, -3, 1000); },
    .tolerance = {.f32 = 0, .f64 = 0},
};

Tensor draw(const OpDef& op, const Shape& sizes, const RandomKey& key, double a, double b, DType dtype) {
  return apply1(op, {}, Attrs::of(RandomAttrs{sizes, key, dtype, a, b}));
}

}  // namespace

Tensor uniform(const Shape& sizes, const RandomKey& key, double low, double high, DType dtype) {
  TUTTI_CHECK(is_floating(dtype), "uniform: cannot draw {}; expected a float dtype, or use randint", name_of(dtype));
  TUTTI_CHECK(low <= high, "uniform: the interval [{}, {}) is empty", low, high);
  return draw(kUniform, sizes, key, low, high - low, dtype);
}

Tensor normal(const Shape& sizes, const RandomKey& key, double mean, double deviation, DType dtype) {
  TUTTI_CHECK(is_floating(dtype), "normal: cannot draw {}; expected a float dtype", name_of(dtype));
  TUTTI_CHECK(deviation >= 0, "normal: the standard deviation is {}; it cannot be negative", deviation);
  return draw(kNormal, sizes, key, mean, deviation, dtype);
}

Tensor randint(int64_t low, int64_t high, const Shape& sizes, const RandomKey& key, DType dtype) {
  TUTTI_CHECK(is_integral(dtype), "randint: cannot draw {}; expected an integer dtype, or use uniform", name_of(dtype));
  TUTTI_CHECK(low < high && high - low <= int64_t{1} << 31 && low > -(int64_t{1} << 52) && low < int64_t{1} << 52,
              "randint: the range [{}, {}) must hold 1 to 2^31 integers, within 2^52", low, high);
  return draw(kRandint, sizes, key, static_cast<double>(low), static_cast<double>(high - low), dtype);
}

Tensor uniform(const Shape& sizes, double low, double high, DType dtype) {
  return uniform(sizes, next_random_key(), low, high, dtype);
}
Tensor normal(const Shape& sizes, double mean, double deviation, DType dtype) {
  return normal(sizes, next_random_key(), mean, deviation, dtype);
}
Tensor randint(int64_t low, int64_t high, const Shape& sizes, DType dtype) {
  return randint(low, high, sizes, next_random_key(), dtype);
}

}  // namespace tutti

TUTTI_OPS(random, &kUniform, &kNormal, &kRandint)
