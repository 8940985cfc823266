#include "tutti/ops/inplace.h"

#include "tutti/ops/pointwise/pointwise.h"

namespace tutti {
namespace {

constexpr char kNoGradient[] =
    "it writes its operand; use the form without underscore where a gradient is wanted, x = x + y for x += y";

struct InplaceAttrs {
  Scalar value;
  static constexpr auto fields() { return field_list(field::size<&InplaceAttrs::value>("value")); }
};

// One writing op: the operation that combines target and operand, or none (fill_), which takes the operand as it is.
struct InplaceRow : OpDef {
  ScalarOp scalar;
};
constexpr ScalarOp kTakeOperand = ScalarOp::constant;

const InplaceRow& row_of(const OpDef& op) { return static_cast<const InplaceRow&>(op); }
bool has_scalar(const OpCall& call) { return call.inputs.size() == 1; }
const Scalar& scalar_of(const OpCall& call) { return call.attrs.as<InplaceAttrs>().value; }

DType common_dtype(const OpCall& call) {
  const DType target = call[0].dtype();
  const DType common = has_scalar(call) ? promote(target, scalar_of(call)) : promote(target, call[1].dtype());
  return row_of(call.op).scalar == ScalarOp::truediv && !is_floating(common) ? DType::f32 : common;
}

void infer(const OpCall& call, OutputMetas& out) {
  const Tensor& target = call[0];
  const DType common = common_dtype(call);
  TUTTI_CHECK(is_floating(target.dtype()) || !is_floating(common),
              "{}: the target is {}, the result would be {}; cast() the target to a float type first", call.op.name,
              describe(target), name_of(common));
  TUTTI_CHECK(row_of(call.op).scalar != ScalarOp::sub || common != DType::boolean,
              "{}: both operands are boolean; use bit_xor() or logical_not(), or cast() them", call.op.name);
  if (has_scalar(call)) {
    check_fits(scalar_of(call), common, call.op.name);
  } else {
    TUTTI_CHECK(broadcast_shapes(target.sizes(), call[1].sizes(), call.op.name) == target.sizes(),
                "{}: the operand {} does not broadcast to the target {}", call.op.name, describe(call[1]),
                describe(target));
  }
  out.add(target.dtype(), target.sizes());
}

template <class T>
T combine(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::truediv:
      return a / b;  // of floats
    default:
      return b;
  }
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const ScalarOp op = row_of(call.op).scalar;
  pointwise::ReferenceMap map{outputs[0], call.inputs, compute_dtype(common_dtype(call))};
  if (has_scalar(call)) map.scalar = scalar_of(call);
  pointwise::run_map(
      map, [op](const double* v) { return combine(op, v[0], v[1]); },
      [op](const int64_t* v) {
        return static_cast<int64_t>(combine(op, static_cast<uint64_t>(v[0]), static_cast<uint64_t>(v[1])));
      });
}

void build(RecipeBuilder& b) {
  const ScalarOp op = row_of(b.call.op).scalar;
  const DType dtype = compute_dtype(common_dtype(b.call));
  const Expr operand = has_scalar(b.call) ? b.param(0, dtype) : pointwise::in(b, 1, dtype);
  b.out(op == kTakeOperand ? operand : apply_scalar(op, pointwise::in(b, 0, dtype), operand));
}

int params(const OpCall& call, codegen::ParamValue* values) {
  if (!has_scalar(call)) return 0;
  values[0] = pointwise::param_of(scalar_of(call), compute_dtype(common_dtype(call)));
  return 1;
}

// What fill_ overwrites may be terms: it does not read them.
std::string sharding(const OpCall& call) {
  return row_of(call.op).scalar == kTakeOperand ? facets::pointwise_sharding(call, "| zap")
                                                : facets::pointwise_sharding(call, "|", 3);
}

std::vector<Sample> tensor_samples(std::span<const DType> dtypes, pointwise::Range operand) {
  const pointwise::Range ranges[] = {{-3, 3}, operand}, integers[] = {{-9, 9}, {-9, 9}};
  std::vector<Sample> samples = pointwise::samples(dtypes, ranges, integers);
  samples.pop_back();  // the broadcast of both operands, which no target has room for
  samples.push_back(
      {"row_bf16",
       {facets::sample_tensor(1, {4, 5}), facets::sample_tensor(2, {5}, DType::bf16, operand.lo, operand.hi)},
       {}});
  return samples;
}

std::vector<Sample> scalar_samples(std::span<const DType> dtypes) {
  constexpr pointwise::Range range[] = {{-3, 3}}, integers[] = {{-9, 9}};
  std::vector<Sample> samples = pointwise::samples(dtypes, range, integers, Attrs::of(InplaceAttrs{3}));
  samples.push_back({"float_f32", {facets::sample_tensor(1, {4, 5})}, Attrs::of(InplaceAttrs{0.1})});
  return samples;
}

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8};

InplaceRow make_row(const char* name, ScalarOp scalar, int num_inputs, std::vector<Sample> (*samples)()) {
  return {{.name = name,
           .num_inputs = num_inputs,
           .writes = {0, -1, -1, -1},
           .infer = infer,
           .reference = reference,
           .gradient = {.none = kNoGradient},
           .recipe = {.build = build, .params = params},
           .sharding = sharding,
           .samples = samples,
           .tolerance = {0, 0}},
          scalar};
}
InplaceRow of_tensors(const char* name, ScalarOp scalar) {
  return make_row(name, scalar, 2, [] { return tensor_samples(std::span(kDTypes).first(4), {-3, 3}); });
}
InplaceRow of_scalar(const char* name, ScalarOp scalar) {
  return make_row(name, scalar, 1, [] { return scalar_samples(kDTypes); });
}

const InplaceRow kAdd = of_tensors("add_", ScalarOp::add);
const InplaceRow kSub = of_tensors("sub_", ScalarOp::sub);
const InplaceRow kMul = of_tensors("mul_", ScalarOp::mul);
const InplaceRow kTrueDiv =
    make_row("truediv_", ScalarOp::truediv, 2, [] { return tensor_samples(std::span(kDTypes).first(3), {0.5, 3}); });
const InplaceRow kAddScalar = of_scalar("add_scalar_", ScalarOp::add);
const InplaceRow kSubScalar = of_scalar("sub_scalar_", ScalarOp::sub);
const InplaceRow kMulScalar = of_scalar("mul_scalar_", ScalarOp::mul);
const InplaceRow kTrueDivScalar =
    make_row("truediv_scalar_", ScalarOp::truediv, 1, [] { return scalar_samples(std::span(kDTypes).first(3)); });
const InplaceRow kFill = of_scalar("fill_", kTakeOperand);

}  // namespace

Tensor add_(const Tensor& target, const Tensor& x) { return call_op(kAdd, {}, target, x); }
Tensor add_(const Tensor& target, const Scalar& x) { return call_op(kAddScalar, Attrs::of(InplaceAttrs{x}), target); }
Tensor sub_(const Tensor& target, const Tensor& x) { return call_op(kSub, {}, target, x); }
Tensor sub_(const Tensor& target, const Scalar& x) { return call_op(kSubScalar, Attrs::of(InplaceAttrs{x}), target); }
Tensor mul_(const Tensor& target, const Tensor& x) { return call_op(kMul, {}, target, x); }
Tensor mul_(const Tensor& target, const Scalar& x) { return call_op(kMulScalar, Attrs::of(InplaceAttrs{x}), target); }
Tensor truediv_(const Tensor& target, const Tensor& x) { return call_op(kTrueDiv, {}, target, x); }
Tensor truediv_(const Tensor& target, const Scalar& x) {
  return call_op(kTrueDivScalar, Attrs::of(InplaceAttrs{x}), target);
}
Tensor fill_(const Tensor& target, const Scalar& value) {
  return call_op(kFill, Attrs::of(InplaceAttrs{value}), target);
}
Tensor zero_(const Tensor& target) { return fill_(target, 0); }

}  // namespace tutti

TUTTI_OPS(inplace, &kAdd, &kSub, &kMul, &kTrueDiv, &kAddScalar, &kSubScalar, &kMulScalar, &kTrueDivScalar, &kFill)
