#include "tutti/ops/comparison.h"

#include "tutti/ops/pointwise/binary_row.h"

namespace tutti {
namespace {

using pointwise::BinaryInfo;

#define COMPARISON(Op, op, sign)                                                                          \
  struct Op {                                                                                             \
    static constexpr BinaryInfo info{.names = {#op, #op "_scalar", #op "_of_scalar"},                     \
                                     .scalar = ScalarOp::op,                                              \
                                     .rule = pointwise::BinaryRule::truth,                                \
                                     .value = [](double a, double b) { return a sign b ? 1.0 : 0.0; },    \
                                     .integer = [](int64_t a, int64_t b) -> int64_t { return a sign b; }, \
                                     .partial = {"|", "|", "|"},                                          \
                                     .opaque = 3,                                                         \
                                     .exact = true,                                                       \
                                     .no_gradient = "the result is a truth value"};                       \
  };

COMPARISON(Eq, eq, ==)
COMPARISON(Ne, ne, !=)
COMPARISON(Lt, lt, <)
COMPARISON(Le, le, <=)
COMPARISON(Gt, gt, >)
COMPARISON(Ge, ge, >=)
#undef COMPARISON

}  // namespace

TUTTI_DEFINE_BINARY(eq, Eq)
TUTTI_DEFINE_BINARY(ne, Ne)
TUTTI_DEFINE_BINARY(lt, Lt)
TUTTI_DEFINE_BINARY(le, Le)
TUTTI_DEFINE_BINARY(gt, Gt)
TUTTI_DEFINE_BINARY(ge, Ge)

}  // namespace tutti

TUTTI_OPS(comparison, TUTTI_BINARY_ROWS(Eq), TUTTI_BINARY_ROWS(Ne), TUTTI_BINARY_ROWS(Lt), TUTTI_BINARY_ROWS(Le),
          TUTTI_BINARY_ROWS(Gt), TUTTI_BINARY_ROWS(Ge))
