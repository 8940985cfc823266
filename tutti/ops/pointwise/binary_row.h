// The facets that all pointwise ops of two operands share. binary.cpp, bitwise.cpp and comparison.cpp describe each
// operation by a struct; BinaryOp makes its three rows (two tensors, a number second, a number first).
#pragma once

#include "tutti/ops/engine/attrs.h"
#include "tutti/ops/pointwise/pointwise.h"
#include "tutti/ops/scalar.h"

namespace tutti::pointwise {

enum class BinaryRule : uint8_t {
  number,      // the common type
  difference,  // the common type, not booleans
  division,    // the common type, booleans as i64
  floats,      // the common type, integers give f32
  neighbours,  // f32 or f64
  bits,        // integers and booleans
  shifts,      // integers
  truth,       // compared in the common type, result boolean
};
enum class BinaryForm : uint8_t { tensors, scalar_second, scalar_first };

struct ScalarAttrs {
  Scalar value;
  static constexpr auto fields() { return field_list(field::size<&ScalarAttrs::value>("value")); }
};

// The definition of one operation, whatever its form. Arrays of three are indexed by the form.
struct BinaryInfo {
  const char* names[3];
  ScalarOp scalar;
  BinaryRule rule;
  double (*value)(double, double);
  int64_t (*integer)(int64_t, int64_t);  // null: no integer form
  const char* partial[3];                // sharding: partial values that pass
  uint32_t opaque = 0;                   // sharding: inputs that are never partial
  bool exact = false;                    // IEEE 754 demands the correctly rounded result
  const char* no_gradient = nullptr;     // the reason
  uint8_t saves_inputs[3] = {};          // bits
  uint8_t saves_outputs[3] = {};
  Range a{-3, 3}, b{-3, 3}, ia{-9, 9}, ib{1, 7};  // of samples
};

struct BinaryRow : OpDef {
  const BinaryInfo* info;
  BinaryForm form;
};

using Vjp = void (*)(const VjpCall&, std::span<Tensor>);
BinaryRow binary_row(const BinaryInfo& info, BinaryForm form, Vjp vjp, std::vector<Sample> (*samples)());
std::vector<Sample> binary_samples(const BinaryRow& row);

// Op has `static constexpr BinaryInfo info` and, unless info.no_gradient, `da(g, a, b, y)` and `db(g, a, b, y)`: the
// cotangents of a and b for tensors or numbers a and b, before the sum over broadcast dims. What info.saves_* does not
// name is undefined there.
template <class Op>
struct BinaryOp {
  static Tensor call(const Tensor& a, const Tensor& b) { return call_op(tensors, {}, a, b); }
  static Tensor call(const Tensor& a, const Scalar& b) { return call_op(scalar_second, Attrs::of(ScalarAttrs{b}), a); }
  static Tensor call(const Scalar& a, const Tensor& b) { return call_op(scalar_first, Attrs::of(ScalarAttrs{a}), b); }

  static void vjp(const VjpCall& c, std::span<Tensor> grads) {
    if constexpr (Op::info.no_gradient == nullptr) {
      const Tensor &g = c.grads[0], &x = c.inputs[0], &y = c.outputs[0];
      if (!g.defined()) return;
      const auto form = static_cast<const BinaryRow&>(c.op).form;
      if (form == BinaryForm::tensors) {
        if (c.needs(0)) grads[0] = cotangent(c, 0, [](auto&... operands) { return Op::da(operands...); });
        if (c.needs(1)) grads[1] = cotangent(c, 1, [](auto&... operands) { return Op::db(operands...); });
        return;
      }
      const Scalar& number = c.attrs.as<ScalarAttrs>().value;
      grads[0] = form == BinaryForm::scalar_second ? Op::da(g, x, number, y) : Op::db(g, number, x, y);
      grads[0] = reduce_like(grads[0], c.input_metas[0]);
    }
  }

  // `of` makes the cotangent of operand i from g, a, b and y. Where it is summed, its terms are made of widened
  // operands and of the result before it was rounded, so that the sum alone is rounded (numerics contract, N4).
  template <class Of>
  static Tensor cotangent(const VjpCall& c, size_t i, Of of) {
    const Tensor &g = c.grads[0], &a = c.inputs[0], &b = c.inputs[1], &y = c.outputs[0];
    if (!is_summed(g, c.input_metas[i])) return reduce_like(of(g, a, b, y), c.input_metas[i]);
    const Tensor wide_g = widened(g), wide_a = widened(a), wide_b = widened(b);
    const bool was_rounded = y.defined() && a.defined() && b.defined() && y.dtype() != compute_dtype(y.dtype());
    const Tensor wide_y = was_rounded ? call(wide_a, wide_b) : widened(y);
    return reduce_like(of(wide_g, wide_a, wide_b, wide_y), c.input_metas[i]);
  }

  template <BinaryForm kForm>
  static std::vector<Sample> samples() {
    return binary_samples(kForm == BinaryForm::tensors         ? tensors
                          : kForm == BinaryForm::scalar_second ? scalar_second
                                                               : scalar_first);
  }
  template <BinaryForm kForm>
  static BinaryRow row() {
    return binary_row(Op::info, kForm, vjp, samples<kForm>);
  }
  static inline const BinaryRow tensors = row<BinaryForm::tensors>();
  static inline const BinaryRow scalar_second = row<BinaryForm::scalar_second>();
  static inline const BinaryRow scalar_first = row<BinaryForm::scalar_first>();
};

}  // namespace tutti::pointwise

// The three public functions of `op`, described by the struct `Op`; and its rows for TUTTI_OPS.
#define TUTTI_DEFINE_BINARY(op, Op)                                                                    \
  Tensor op(const Tensor& a, const Tensor& b) { return ::tutti::pointwise::BinaryOp<Op>::call(a, b); } \
  Tensor op(const Tensor& a, const Scalar& b) { return ::tutti::pointwise::BinaryOp<Op>::call(a, b); } \
  Tensor op(const Scalar& a, const Tensor& b) { return ::tutti::pointwise::BinaryOp<Op>::call(a, b); }
#define TUTTI_BINARY_ROWS(Op) \
  &pointwise::BinaryOp<Op>::tensors, &pointwise::BinaryOp<Op>::scalar_second, &pointwise::BinaryOp<Op>::scalar_first
