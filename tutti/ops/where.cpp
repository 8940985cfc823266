#include "tutti/ops/where.h"

#include "tutti/ops/pointwise/pointwise.h"

namespace tutti {
namespace {

void check_condition(const OpCall& call) {
  TUTTI_CHECK(call[0].dtype() == DType::boolean, "{}: the condition is {}; expected booleans, e.g. ne(condition, 0)",
              call.op.name, describe(call[0]));
}

// ---- two tensors ----------------------------------------------------------------------------------------------------

void infer_where(const OpCall& call, OutputMetas& out) {
  check_condition(call);
  out.add(promote(call[1].dtype(), call[2].dtype()), facets::broadcast_inputs(call));
}

void where_reference(const OpCall& call, std::span<const Tensor> outputs) {
  pointwise::run_map(
      {outputs[0], call.inputs, compute_dtype(outputs[0].dtype())},
      [](const double* v) { return v[0] != 0 ? v[1] : v[2]; },
      [](const int64_t* v) { return v[0] != 0 ? v[1] : v[2]; });
}

void where_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor &g = c.grads[0], &condition = c.inputs[0];
  if (!g.defined()) return;
  if (c.needs(1)) grads[1] = pointwise::reduce_like(where(condition, g, 0.0), c.input_metas[1]);
  if (c.needs(2)) grads[2] = pointwise::reduce_like(where(condition, 0.0, g), c.input_metas[2]);
}

void build_where(RecipeBuilder& b) {
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  b.out(where(b.in(0), pointwise::in(b, 1, dtype), pointwise::in(b, 2, dtype)));
}

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8, DType::boolean};
constexpr pointwise::Range kFloats[] = {{-3, 3}, {-3, 3}}, kIntegers[] = {{-9, 9}, {-9, 9}};

Tensor condition_for(const Extents& sizes) { return facets::sample_tensor(41, sizes, DType::boolean, 0, 2); }

const OpDef kWhere{
    .name = "where",
    .num_inputs = 3,
    .infer = infer_where,
    .reference = where_reference,
    .gradient = {.vjp = where_vjp, .saves_inputs = 1},
    .recipe = {.build = build_where},
    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "| id+", 1); },
    .samples =
        [] {
          std::vector<Sample> samples = pointwise::samples(kDTypes, kFloats, kIntegers);
          for (Sample& s : samples) s.inputs.insert(s.inputs.begin(), condition_for(s.inputs[0].extents()));
          samples.push_back({"condition_row",
                             {condition_for({5}), facets::sample_tensor(1, {3, 5}), facets::sample_tensor(2, {3, 1})},
                             {}});
          return samples;
        },
    .tolerance = {0, 0},
};

// ---- a tensor and a number ------------------------------------------------------------------------------------------

struct WhereScalarAttrs {
  Scalar value;
  bool value_first;  // the number is taken where the condition is true
  static constexpr auto fields() {
    return field_list(field::size<&WhereScalarAttrs::value>("value"),
                      field::rule<&WhereScalarAttrs::value_first>("value_first"));
  }
};

const WhereScalarAttrs& attrs_of(const OpCall& call) { return call.attrs.as<WhereScalarAttrs>(); }

void infer_where_scalar(const OpCall& call, OutputMetas& out) {
  check_condition(call);
  const DType dtype = promote(call[1].dtype(), attrs_of(call).value);
  check_fits(attrs_of(call).value, dtype, "where");
  out.add(dtype, facets::broadcast_inputs(call));
}

void where_scalar_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const WhereScalarAttrs& attrs = attrs_of(call);
  pointwise::run_map(
      {outputs[0], call.inputs, compute_dtype(outputs[0].dtype()), attrs.value, attrs.value_first ? 1 : 2},
      [](const double* v) { return v[0] != 0 ? v[1] : v[2]; },
      [](const int64_t* v) { return v[0] != 0 ? v[1] : v[2]; });
}

void where_scalar_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor &g = c.grads[0], &condition = c.inputs[0];
  if (!g.defined() || !c.needs(1)) return;
  const bool value_first = c.attrs.as<WhereScalarAttrs>().value_first;
  grads[1] =
      pointwise::reduce_like(value_first ? where(condition, 0.0, g) : where(condition, g, 0.0), c.input_metas[1]);
}

void build_where_scalar(RecipeBuilder& b) {
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  const Expr x = pointwise::in(b, 1, dtype), value = b.param(0, dtype);
  b.out(attrs_of(b.call).value_first ? where(b.in(0), value, x) : where(b.in(0), x, value));
}

int where_scalar_params(const OpCall& call, codegen::ParamValue* values) {
  const Scalar& value = attrs_of(call).value;
  values[0] = pointwise::param_of(value, compute_dtype(promote(call[1].dtype(), value)));
  return 1;
}

const OpDef kWhereScalar{
    .name = "where_scalar",
    .num_inputs = 2,
    .infer = infer_where_scalar,
    .reference = where_scalar_reference,
    .gradient = {.vjp = where_scalar_vjp, .saves_inputs = 1},
    .recipe = {.build = build_where_scalar, .params = where_scalar_params},
    // With 0 the chosen places of a partial sum are partial sums as well; with another number they are not.
    .sharding =
        [](const OpCall& call) {
          return facets::pointwise_sharding(call, attrs_of(call).value.to_double() == 0 ? "| id" : "| idem+", 1);
        },
    .sharding_reads_numbers = true,
    .samples =
        [] {
          constexpr pointwise::Range one[] = {{-3, 3}}, integers[] = {{-9, 9}};
          std::vector<Sample> samples;
          for (const bool first : {false, true}) {
            for (Sample& s : pointwise::samples(kDTypes, one, integers, Attrs::of(WhereScalarAttrs{1, first}))) {
              s.name += first ? "_first" : "_second";
              s.inputs.insert(s.inputs.begin(), condition_for(s.inputs[0].extents()));
              samples.push_back(std::move(s));
            }
          }
          samples.push_back({"float_into_i32",
                             {condition_for({7}), facets::sample_tensor(3, {2, 7}, DType::i32, -9, 9)},
                             Attrs::of(WhereScalarAttrs{0.5, true})});
          return samples;
        },
    .tolerance = {0, 0},
};

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) { return call_op(kWhere, {}, condition, a, b); }
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b) {
  return call_op(kWhereScalar, Attrs::of(WhereScalarAttrs{b, false}), condition, a);
}
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b) {
  return call_op(kWhereScalar, Attrs::of(WhereScalarAttrs{a, true}), condition, b);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value) {
  TUTTI_CHECK(broadcast_shapes(x.sizes(), mask.sizes(), "masked_fill") == x.sizes(),
              "masked_fill: the mask {} does not broadcast to x, which is {}", describe(mask), describe(x));
  return where(mask, value, x);
}

}  // namespace tutti

TUTTI_OPS(where, &kWhere, &kWhereScalar)
