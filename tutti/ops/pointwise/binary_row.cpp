#include "tutti/ops/pointwise/binary_row.h"

#include <cmath>

namespace tutti::pointwise {
namespace {

const BinaryRow& row_of(const OpDef& op) { return static_cast<const BinaryRow&>(op); }
bool has_scalar(const OpCall& call) { return row_of(call.op).form != BinaryForm::tensors; }
const Scalar& scalar_of(const OpCall& call) { return call.attrs.as<ScalarAttrs>().value; }

DType common_dtype(const OpCall& call) {
  return has_scalar(call) ? promote(call[0].dtype(), scalar_of(call)) : facets::promote_inputs(call);
}

// The type of the values that are combined; the result has it too, unless it is a truth value.
DType value_dtype(const OpCall& call) {
  const DType dtype = common_dtype(call);
  switch (row_of(call.op).info->rule) {
    case BinaryRule::division:
      return dtype == DType::boolean ? DType::i64 : dtype;
    case BinaryRule::floats:
    case BinaryRule::neighbours:
      return is_floating(dtype) ? dtype : DType::f32;
    default:
      return dtype;
  }
}

void check_operands(const OpCall& call, DType dtype) {
  const BinaryInfo& info = *row_of(call.op).info;
  const BinaryRule rule = info.rule;
  TUTTI_CHECK(rule != BinaryRule::difference || dtype != DType::boolean,
              "{}: both operands are boolean; use bit_xor() or logical_not(), or cast() them", call.op.name);
  TUTTI_CHECK(rule != BinaryRule::neighbours || dtype == DType::f32 || dtype == DType::f64,
              "{}: the operands are {}; neighbouring floats are defined for f32 and f64, cast() first", call.op.name,
              name_of(dtype));
  TUTTI_CHECK(rule != BinaryRule::bits || !is_floating(dtype), "{}: the operands are {}; expected integers or booleans",
              call.op.name, name_of(dtype));
  TUTTI_CHECK(rule != BinaryRule::shifts || is_integral(dtype), "{}: the operands are {}; expected integers",
              call.op.name, name_of(dtype));
  if (!has_scalar(call) || is_floating(dtype)) return;
  const Scalar& scalar = scalar_of(call);
  check_fits(scalar, dtype, call.op.name);
  if (row_of(call.op).form != BinaryForm::scalar_second) return;
  if (rule == BinaryRule::division && scalar.to_int64() == 0 && info.scalar != ScalarOp::pow)
    throw IntegerDivideByZero(call.op.name);
  TUTTI_CHECK(
      info.scalar != ScalarOp::pow || scalar.to_int64() >= 0,
      "{}: Integers to negative integer powers are not allowed. x is {}, the exponent {}; cast() x to a float type",
      call.op.name, describe(call[0]), scalar.to_string());
}

void infer(const OpCall& call, OutputMetas& out) {
  const DType dtype = value_dtype(call);
  check_operands(call, dtype);
  out.add(row_of(call.op).info->rule == BinaryRule::truth ? DType::boolean : dtype, facets::broadcast_inputs(call));
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const BinaryRow& row = row_of(call.op);
  const BinaryInfo& info = *row.info;
  ReferenceMap map{outputs[0], call.inputs, compute_dtype(value_dtype(call))};
  if (has_scalar(call)) map.scalar = scalar_of(call);
  map.scalar_at = row.form == BinaryForm::scalar_first ? 0 : 1;
  std::function<int64_t(const int64_t*)> integer;
  if (info.integer) integer = [&](const int64_t* v) { return info.integer(v[0], v[1]); };
  if (info.rule == BinaryRule::neighbours && map.compute == DType::f32) {
    // The neighbour depends on the format: the one of a double would round back to the operand.
    run_map(
        map, [](const double* v) { return std::nextafter(static_cast<float>(v[0]), static_cast<float>(v[1])); },
        integer);
    return;
  }
  run_map(map, [&](const double* v) { return info.value(v[0], v[1]); }, integer);
}

void build(RecipeBuilder& b) {
  const BinaryRow& row = row_of(b.call.op);
  const DType dtype = compute_dtype(value_dtype(b.call));
  const Expr x = in(b, 0, dtype);
  const Expr y = row.form == BinaryForm::tensors ? in(b, 1, dtype) : b.param(0, dtype);
  b.out(row.form == BinaryForm::scalar_first ? apply_scalar(row.info->scalar, y, x)
                                             : apply_scalar(row.info->scalar, x, y));
}

int params(const OpCall& call, codegen::ParamValue* values) {
  if (!has_scalar(call)) return 0;
  values[0] = param_of(scalar_of(call), compute_dtype(value_dtype(call)));
  return 1;
}

// The kind of the number decides in which type a tensor of integers is combined.
uint64_t variant(const OpCall& call) { return has_scalar(call) ? static_cast<uint64_t>(scalar_of(call).kind()) : 0; }

std::string sharding(const OpCall& call) {
  const BinaryRow& row = row_of(call.op);
  return facets::pointwise_sharding(call, row.info->partial[static_cast<int>(row.form)],
                                    row.form == BinaryForm::tensors ? row.info->opaque : 0);
}

}  // namespace

BinaryRow binary_row(const BinaryInfo& info, BinaryForm form, Vjp vjp, std::vector<Sample> (*samples)()) {
  const auto k = static_cast<size_t>(form);
  Gradient gradient{.vjp = vjp, .saves_inputs = info.saves_inputs[k], .saves_outputs = info.saves_outputs[k]};
  if (info.no_gradient) gradient = {.none = info.no_gradient};
  return {{.name = info.names[k],
           .num_inputs = form == BinaryForm::tensors ? 2 : 1,
           .infer = infer,
           .reference = reference,
           .gradient = gradient,
           .recipe = {.build = build, .params = params, .variant = variant},
           .sharding = sharding,
           .samples = samples,
           .tolerance = info.exact ? Tolerance{0, 0} : Tolerance{4e-6, 1e-13}},
          &info,
          form};
}

std::vector<Sample> binary_samples(const BinaryRow& row) {
  constexpr DType any[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i32, DType::u8};
  constexpr DType floats[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32};
  constexpr DType wide[] = {DType::f32, DType::f64};
  constexpr DType bits[] = {DType::i64, DType::i16, DType::i8, DType::u8, DType::boolean};
  const BinaryInfo& info = *row.info;
  std::span<const DType> dtypes = any;
  if (info.rule == BinaryRule::floats) dtypes = floats;
  if (info.rule == BinaryRule::neighbours) dtypes = wide;
  if (info.rule == BinaryRule::bits) dtypes = bits;
  if (info.rule == BinaryRule::shifts) dtypes = std::span<const DType>(bits).first(4);
  if (row.form == BinaryForm::tensors) {
    const Range ranges[] = {info.a, info.b}, integers[] = {info.ia, info.ib};
    std::vector<Sample> result = samples(dtypes, ranges, integers);
    if (info.rule == BinaryRule::number || info.rule == BinaryRule::truth) {
      result.push_back(
          {"mixed_types",
           {facets::sample_tensor(1, {4, 5}, DType::i64, -9, 9), facets::sample_tensor(2, {5}, DType::bf16, -3, 3)},
           {}});
      result.push_back({"booleans",
                        {facets::sample_tensor(1, {4, 5}, DType::boolean, 0, 2),
                         facets::sample_tensor(2, {5}, DType::boolean, 0, 2)},
                        {}});
    }
    return result;
  }
  // An odd integer works for every type; a float for floats, and for integers where the result is a float.
  const bool second = row.form == BinaryForm::scalar_second;
  const Range ranges[] = {second ? info.a : info.b}, integers[] = {second ? info.ia : info.ib};
  std::vector<Sample> result = samples(dtypes, ranges, integers, Attrs::of(ScalarAttrs{3}));
  if (info.rule == BinaryRule::bits || info.rule == BinaryRule::shifts) return result;
  const Attrs half = Attrs::of(ScalarAttrs{1.5});
  result.push_back({"float_f32", {facets::sample_tensor(5, {4, 7}, DType::f32, ranges[0].lo, ranges[0].hi)}, half});
  if (info.rule != BinaryRule::neighbours)
    result.push_back(
        {"float_i32", {facets::sample_tensor(6, {4, 7}, DType::i32, integers[0].lo, integers[0].hi)}, half});
  return result;
}

}  // namespace tutti::pointwise
