// ReduceOp: the reductions of collectives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/core/dtype.h"

namespace tutti::comm {

enum class ReduceKind : uint8_t { sum, avg, product, min, max, band, bor, bxor, premul_sum };
inline constexpr int kNumReduceKinds = 9;

// Immutable. Sums, averages and products of bf16, f16 and fp8 are computed in f32 over the halving tree of the ranks
// and rounded once (numerics contract, N4). Integers wrap, and their average truncates toward zero. min and max give
// NaN if any value is NaN. For booleans, sum, max and bor are "or", product, min and band are "and", bxor is "xor"; avg
// and premul_sum are refused.
class ReduceOp {
 public:
  constexpr ReduceOp(ReduceKind kind = ReduceKind::sum) : kind_(kind) {}  // NOLINT: a kind is an op
  // The sum of each rank's values times that rank's own `factor`; each product is rounded once to the compute dtype.
  static constexpr ReduceOp premul_sum(double factor) {
    ReduceOp op(ReduceKind::premul_sum);
    op.factor_ = factor;
    return op;
  }
  constexpr ReduceKind kind() const { return kind_; }
  constexpr double factor() const { return factor_; }

 private:
  ReduceKind kind_;
  double factor_ = 1.0;
};

std::string_view name_of(ReduceKind kind);
// "sum", "avg", ...; UsageError lists the known names.
ReduceKind reduce_kind_from_name(std::string_view name);

// "" when values of `dtype` can be reduced with `kind`, else the reason why not.
std::string why_not_reducible(ReduceKind kind, DType dtype);

}  // namespace tutti::comm
