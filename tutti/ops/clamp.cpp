#include "tutti/ops/clamp.h"

#include <cmath>

#include "tutti/ops/bitwise.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/pointwise/pointwise.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

struct ClampAttrs {
  Scalar min, max;
  bool has_min, has_max;
  static constexpr auto fields() {
    return field_list(field::size<&ClampAttrs::min>("min"), field::size<&ClampAttrs::max>("max"),
                      field::rule<&ClampAttrs::has_min>("has_min"), field::rule<&ClampAttrs::has_max>("has_max"));
  }
};

const ClampAttrs& attrs_of(const OpCall& call) { return call.attrs.as<ClampAttrs>(); }

DType result_dtype(const OpCall& call) {
  const ClampAttrs& a = attrs_of(call);
  DType dtype = call[0].dtype();
  if (a.has_min) dtype = promote(dtype, a.min);
  return a.has_max ? promote(dtype, a.max) : dtype;
}

void infer(const OpCall& call, OutputMetas& out) {
  const ClampAttrs& a = attrs_of(call);
  const DType dtype = result_dtype(call);
  if (a.has_min) check_fits(a.min, dtype, "clamp");
  if (a.has_max) check_fits(a.max, dtype, "clamp");
  out.add(dtype, call[0].sizes());
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const ClampAttrs& a = attrs_of(call);
  const DType compute = compute_dtype(result_dtype(call));
  const auto bound = [&](const Scalar& s) {
    return compute == DType::f32 ? static_cast<double>(static_cast<float>(s.to_double())) : s.to_double();
  };
  pointwise::run_map(
      {outputs[0], call.inputs, compute},
      [&](const double* v) {
        double x = v[0];
        if (a.has_min && x < bound(a.min)) x = bound(a.min);
        if (a.has_max && x > bound(a.max)) x = bound(a.max);
        return x;
      },
      [&](const int64_t* v) {
        int64_t x = v[0];
        if (a.has_min) x = std::max(x, a.min.to_int64());
        if (a.has_max) x = std::min(x, a.max.to_int64());
        return x;
      });
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  const ClampAttrs& a = c.attrs.as<ClampAttrs>();
  const Tensor &g = c.grads[0], &x = c.inputs[0];
  if (!g.defined()) return;
  const Tensor inside = !a.has_max ? ge(x, a.min) : !a.has_min ? le(x, a.max) : bit_and(ge(x, a.min), le(x, a.max));
  grads[0] = pointwise::reduce_like(where(inside, g, 0.0), c.input_metas[0]);
}

void build(RecipeBuilder& b) {
  const ClampAttrs& a = attrs_of(b.call);
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  Expr x = pointwise::in(b, 0, dtype);
  if (a.has_min) x = apply_scalar(ScalarOp::maximum, x, b.param(0, dtype));
  if (a.has_max) x = apply_scalar(ScalarOp::minimum, x, b.param(1, dtype));
  b.out(x);
}

std::vector<Sample> clamp_samples() {
  constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i16};
  constexpr pointwise::Range range[] = {{-3, 3}}, integers[] = {{-9, 9}};
  std::vector<Sample> samples = pointwise::samples(dtypes, range, integers, Attrs::of(ClampAttrs{-1, 2, true, true}));
  const Tensor x = Tensor::of<float>({-INFINITY, -2.0f, -0.5f, -0.0f, 0.0f, 0.5f, 2.0f, INFINITY, NAN});
  samples.push_back({"min_only", {x}, Attrs::of(ClampAttrs{-0.5, 0, true, false})});
  samples.push_back({"max_only", {x}, Attrs::of(ClampAttrs{0, 0.5, false, true})});
  samples.push_back({"crossed", {x}, Attrs::of(ClampAttrs{1.0, -1.0, true, true})});
  return samples;
}

const OpDef kClamp{
    .name = "clamp",
    .num_inputs = 1,
    .infer = infer,
    .reference = reference,
    .gradient = {.vjp = vjp, .saves_inputs = 1},
    .recipe = {
        .build = build,
        .params =
            [](const OpCall& call, codegen::ParamValue* values) {
              const DType dtype = compute_dtype(result_dtype(call));
              values[0] = pointwise::param_of(attrs_of(call).min, dtype);
              values[1] = pointwise::param_of(attrs_of(call).max, dtype);
              return 2;
            },
        .variant = [](const OpCall& call) -> uint64_t { return attrs_of(call).has_min + 2u * attrs_of(call).has_max; }},
    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "| up+ | up"); },
    .samples = clamp_samples,
    .tolerance = {0, 0},
};

}  // namespace

Tensor clamp(const Tensor& x, const ClampOptions& options) {
  TUTTI_CHECK(options.min || options.max, "clamp: neither min nor max is given for x, which is {}; give at least one",
              describe(x));
  const ClampAttrs attrs{options.min.value_or(Scalar()), options.max.value_or(Scalar()), options.min.has_value(),
                         options.max.has_value()};
  return call_op(kClamp, Attrs::of(attrs), x);
}

}  // namespace tutti

TUTTI_OPS(clamp, &kClamp)
