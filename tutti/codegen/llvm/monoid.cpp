#include "tutti/codegen/llvm/monoid.h"

#include <limits>

#include "tutti/codegen/llvm/math.h"
#include "tutti/codegen/llvm/scalar_ops.h"

namespace tutti::codegen {

using llvm::Constant;
using llvm::Value;

namespace {

constexpr int64_t kNoIndex = std::numeric_limits<int64_t>::max();

// Lower and upper half of the lanes are joined until one is left.
template <class Join>
Components fold(llvm::IRBuilderBase& b, Components v, Join join) {
  for (unsigned lanes = lanes_of(v[0]); lanes > 1; lanes /= 2) {
    llvm::SmallVector<int, 16> first, second;
    for (unsigned k = 0; k < lanes / 2; ++k) {
      first.push_back(static_cast<int>(k));
      second.push_back(static_cast<int>(k + lanes / 2));
    }
    Components low, high;
    for (Value* x : v) {
      low.push_back(lanes == 2 ? b.CreateExtractElement(x, uint64_t{0}) : b.CreateShuffleVector(x, first));
      high.push_back(lanes == 2 ? b.CreateExtractElement(x, uint64_t{1}) : b.CreateShuffleVector(x, second));
    }
    v = join(low, high);
  }
  return v;
}

}  // namespace

Monoid::Monoid(Emitter& e, size_t first_reduction)
    : e_(e),
      b_(e.b),
      op_(e.spec.reductions[first_reduction].op),
      dtype_(e.spec.nodes[static_cast<size_t>(e.spec.reductions[first_reduction].value)].dtype),
      value_(e.spec.reductions[first_reduction].value),
      first_(first_reduction) {}

bool Monoid::wants_largest() const {
  return op_ == ReduceOp::max || op_ == ReduceOp::argmax || op_ == ReduceOp::softmax_max;
}

llvm::SmallVector<llvm::Type*, 2> Monoid::component_types(unsigned lanes) const {
  llvm::SmallVector<llvm::Type*, 2> types{widened(register_type(b_.getContext(), dtype_), lanes)};
  if (has_index()) types.push_back(widened(b_.getInt64Ty(), lanes));
  if (is_softmax()) types.push_back(types[0]);
  return types;
}

Constant* Monoid::value_identity() const {
  llvm::Type* type = register_type(b_.getContext(), dtype_);
  const bool is_float = is_floating(dtype_);
  switch (op_) {
    case ReduceOp::sum:
      return is_float ? llvm::ConstantFP::get(type, -0.0) : llvm::ConstantInt::get(type, 0);
    case ReduceOp::prod:
      return is_float ? llvm::ConstantFP::get(type, 1.0) : llvm::ConstantInt::get(type, 1);
    case ReduceOp::any:
      return llvm::ConstantInt::getFalse(type);
    case ReduceOp::all:
      return llvm::ConstantInt::getTrue(type);
    default:
      break;
  }
  if (is_float) return llvm::ConstantFP::getInfinity(type, wants_largest());
  const unsigned bits = type->getScalarSizeInBits();
  const bool has_sign = is_signed(dtype_);
  const llvm::APInt lowest = has_sign ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits);
  const llvm::APInt highest = has_sign ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits);
  return llvm::ConstantInt::get(type, wants_largest() ? lowest : highest);
}

Components Monoid::identity(unsigned lanes) const {
  Components v{splat(b_, value_identity(), lanes)};
  if (has_index()) v.push_back(splat(b_, e_.i64(kNoIndex), lanes));
  if (is_softmax()) v.push_back(Constant::getNullValue(v[0]->getType()));
  return v;
}

Components Monoid::lift(Value* x, Value* index, Value* mask) const {
  Components v{x};
  if (has_index()) v.push_back(index);
  if (is_softmax()) v.push_back(llvm::ConstantFP::get(x->getType(), has_rest() ? 0.0 : 1.0));
  if (!mask) return v;
  const Components none = identity(lanes_of(x));
  for (size_t k = 0; k < v.size(); ++k) v[k] = b_.CreateSelect(mask, v[k], none[k]);
  return v;
}

Value* Monoid::join(Value* a, Value* b) const {
  const bool is_float = is_floating(dtype_);
  switch (op_) {
    case ReduceOp::sum:
      return is_float ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    case ReduceOp::prod:
      return is_float ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
    case ReduceOp::any:
      return b_.CreateOr(a, b);
    case ReduceOp::all:
      return b_.CreateAnd(a, b);
    default:
      break;
  }
  // The sign of a zero that is a result must not depend on the order; that of a softmax's maximum has no effect.
  if (is_float) return (is_softmax() ? emit_float_extreme : emit_ordered_extreme)(b_, wants_largest(), a, b);
  const ScalarOp extreme = wants_largest() ? ScalarOp::maximum : ScalarOp::minimum;
  return emit_integer_op({b_}, extreme, dtype_, {a, b});
}

// The better value wins, NaN is better than any number, and the lower index is better among equals: an order on
// (value, index) pairs, so the result does not depend on how they are combined.
Components Monoid::join_indexed(const Components& a, const Components& b) const {
  Value *better, *equal;
  if (is_floating(dtype_)) {
    Value* a_nan = b_.CreateFCmpUNO(a[0], a[0]);
    Value* b_nan = b_.CreateFCmpUNO(b[0], b[0]);
    Value* beyond = wants_largest() ? b_.CreateFCmpOGT(b[0], a[0]) : b_.CreateFCmpOLT(b[0], a[0]);
    better = b_.CreateOr(beyond, b_.CreateAnd(b_nan, b_.CreateNot(a_nan)));
    equal = b_.CreateOr(b_.CreateFCmpOEQ(a[0], b[0]), b_.CreateAnd(a_nan, b_nan));
  } else {
    const bool has_sign = is_signed(dtype_);
    better = wants_largest() ? (has_sign ? b_.CreateICmpSGT(b[0], a[0]) : b_.CreateICmpUGT(b[0], a[0]))
                             : (has_sign ? b_.CreateICmpSLT(b[0], a[0]) : b_.CreateICmpULT(b[0], a[0]));
    equal = b_.CreateICmpEQ(a[0], b[0]);
  }
  Value* take_b = b_.CreateOr(better, b_.CreateAnd(equal, b_.CreateICmpSLT(b[1], a[1])));
  return {b_.CreateSelect(take_b, b[0], a[0]), b_.CreateSelect(take_b, b[1], a[1])};
}

Value* Monoid::without_infinity(Value* m) const {
  // exp(x - m) with m = -inf: all x are -inf too, and x - 0 gives the wanted exp(-inf) = 0 instead of NaN.
  Value* lowest = llvm::ConstantFP::getInfinity(m->getType(), true);
  return b_.CreateSelect(b_.CreateFCmpOEQ(m, lowest), Constant::getNullValue(m->getType()), m);
}

Value* Monoid::exponential(Value* x) const { return emit_transcendental(b_, ScalarOp::exp, {x}); }

Components Monoid::join_softmax(const Components& a, const Components& b) const {
  Value* m = emit_float_extreme(b_, true, a[0], b[0]);
  Value* origin = without_infinity(m);
  Value* scale_a = exponential(b_.CreateFSub(a[0], origin));
  Value* scale_b = exponential(b_.CreateFSub(b[0], origin));
  Value* l = b_.CreateIntrinsic(llvm::Intrinsic::fma, {m->getType()}, {a[1], scale_a, b_.CreateFMul(b[1], scale_b)});
  return {m, l};
}

// For m_a >= m_b: r = r_a + exp(m_b - m_a) (1 + r_b), and the other way round. Equal maxima have the factor 1, infinite
// ones too.
Components Monoid::join_rest(const Components& a, const Components& b) const {
  Value* m = emit_float_extreme(b_, true, a[0], b[0]);
  Value* low = emit_float_extreme(b_, false, a[0], b[0]);
  Value* lowest = llvm::ConstantFP::getInfinity(m->getType(), true);
  Value* of_equal = b_.CreateSelect(b_.CreateFCmpOEQ(m, lowest), lowest, Constant::getNullValue(m->getType()));
  Value* distance = b_.CreateSelect(b_.CreateFCmpOEQ(a[0], b[0]), of_equal, b_.CreateFSub(low, without_infinity(m)));
  Value* a_leads = b_.CreateFCmpOGE(a[0], b[0]);
  Value* others = b_.CreateFAdd(b_.CreateSelect(a_leads, b[1], a[1]), llvm::ConstantFP::get(m->getType(), 1.0));
  Value* r = b_.CreateIntrinsic(llvm::Intrinsic::fma, {m->getType()},
                                {exponential(distance), others, b_.CreateSelect(a_leads, a[1], b[1])});
  return {m, r};
}

Components Monoid::combine(const Components& a, const Components& b) const {
  if (has_index()) return join_indexed(a, b);
  if (has_rest()) return join_rest(a, b);
  if (is_softmax()) return join_softmax(a, b);
  return {join(a[0], b[0])};
}

Value* Monoid::combine_max(Value* a, Value* b) const { return emit_float_extreme(b_, true, a, b); }

Components Monoid::leaf_identity(unsigned lanes) const {
  Components v = identity(lanes);
  if (has_rest()) v.push_back(v[1]);
  return v;
}

Components Monoid::add_exponential(const Components& sums, Value* x, Value* m, Value* mask) const {
  Components terms{exponential(b_.CreateFSub(x, without_infinity(m)))};
  Constant* zero = Constant::getNullValue(x->getType());
  if (has_rest()) {
    Value* is_maximum = b_.CreateFCmpOEQ(x, m);
    terms = {b_.CreateSelect(is_maximum, zero, terms[0]),
             b_.CreateSelect(is_maximum, llvm::ConstantFP::get(x->getType(), 1.0), zero)};
  }
  if (mask) {
    for (Value*& term : terms) term = b_.CreateSelect(mask, term, zero);
  }
  return add_sums(sums, terms);
}

Components Monoid::add_sums(const Components& a, const Components& b) const {
  Components sums;
  for (size_t k = 0; k < a.size(); ++k) sums.push_back(b_.CreateFAdd(a[k], b[k]));
  return sums;
}

// A leaf of nothing but -inf has no rest, as one of no elements.
Components Monoid::leaf_result(Value* m, const Components& sums) const {
  if (!has_rest()) return {m, sums[0]};
  Value* others = b_.CreateFSub(sums[1], llvm::ConstantFP::get(m->getType(), 1.0));
  Value* is_empty = b_.CreateFCmpOEQ(m, llvm::ConstantFP::getInfinity(m->getType(), true));
  return {m, b_.CreateSelect(is_empty, Constant::getNullValue(m->getType()), b_.CreateFAdd(sums[0], others))};
}

Components Monoid::fold_lanes(const Components& v) const {
  return fold(b_, v, [&](const Components& low, const Components& high) { return combine(low, high); });
}

Value* Monoid::fold_max(Value* lanes) const {
  return fold(b_, {lanes}, [&](const Components& low, const Components& high) {
    return Components{combine_max(low[0], high[0])};
  })[0];
}

Components Monoid::fold_sums(const Components& lanes) const {
  return fold(b_, lanes, [&](const Components& low, const Components& high) { return add_sums(low, high); });
}

Components Monoid::results(const Components& v) const {
  if (is_softmax()) return v;
  if (!has_index()) return {v[0]};
  // Nothing was reduced: any index is as wrong as another, 0 at least is small.
  Value* none = splat(b_, e_.i64(kNoIndex), lanes_of(v[1]));
  return {b_.CreateSelect(b_.CreateICmpEQ(v[1], none), Constant::getNullValue(v[1]->getType()), v[1])};
}

std::vector<int32_t> ReductionGroup::value_nodes() const {
  std::vector<int32_t> nodes;
  for (const Monoid& monoid : monoids) nodes.push_back(monoid.value_node());
  return nodes;
}

std::vector<ReductionGroup> group_reductions(Emitter& e) {
  std::vector<ReductionGroup> groups;
  size_t group_begin = 0;
  for (size_t k = 0; k < e.spec.reductions.size();) {
    const Reduction& reduction = e.spec.reductions[k];
    bool waits = groups.empty() || groups.back().tree != reduction.tree;
    const std::vector<bool> needed = e.reachable({reduction.value});
    for (size_t n = 0; n < needed.size(); ++n) {
      const ExprNode& node = e.spec.nodes[n];
      waits = waits || (needed[n] && node.op == ScalarOp::reduced && static_cast<size_t>(node.index) >= group_begin);
    }
    if (waits) {
      groups.push_back({reduction.tree, {}});
      group_begin = k;
    }
    groups.back().monoids.emplace_back(e, k);
    k += groups.back().monoids.back().reduction_count();
  }
  return groups;
}

}  // namespace tutti::codegen
