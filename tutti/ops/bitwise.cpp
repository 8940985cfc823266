#include "tutti/ops/bitwise.h"

#include "tutti/ops/pointwise/binary_row.h"

namespace tutti {
namespace {

using pointwise::BinaryInfo;
using pointwise::BinaryRule;

// Shifts of the widest integer; a reference of a narrower one cuts the result to its width, and counts that leave the
// narrow type but not the wide one are cut there too.
int64_t shift_left(int64_t a, int64_t n) {
  return n < 0 || n > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << n);
}
int64_t shift_right(int64_t a, int64_t n) { return a >> (n < 0 || n > 63 ? 63 : n); }

constexpr BinaryInfo info_of(const char* const (&names)[3], ScalarOp scalar, BinaryRule rule,
                             int64_t (*integer)(int64_t, int64_t)) {
  return {.names = {names[0], names[1], names[2]},
          .scalar = scalar,
          .rule = rule,
          .value = nullptr,
          .integer = integer,
          .partial = {"|", "|", "|"},
          .opaque = 3,
          .exact = true,
          .no_gradient = "the operands are integers",
          .ib = {0, 5}};
}

#define NAMES(op) {#op, #op "_scalar", #op "_of_scalar"}
#define INTEGER(expression) [](int64_t a, int64_t b) -> int64_t { return expression; }
struct BitAnd {
  static constexpr BinaryInfo info = info_of(NAMES(bit_and), ScalarOp::bit_and, BinaryRule::bits, INTEGER(a& b));
};
struct BitOr {
  static constexpr BinaryInfo info = info_of(NAMES(bit_or), ScalarOp::bit_or, BinaryRule::bits, INTEGER(a | b));
};
struct BitXor {
  static constexpr BinaryInfo info = info_of(NAMES(bit_xor), ScalarOp::bit_xor, BinaryRule::bits, INTEGER(a ^ b));
};
struct ShiftLeft {
  static constexpr BinaryInfo info = info_of(NAMES(shl), ScalarOp::shl, BinaryRule::shifts, shift_left);
};
struct ShiftRight {
  static constexpr BinaryInfo info = info_of(NAMES(shr), ScalarOp::shr, BinaryRule::shifts, shift_right);
};
#undef NAMES
#undef INTEGER

}  // namespace

TUTTI_DEFINE_BINARY(bit_and, BitAnd)
TUTTI_DEFINE_BINARY(bit_or, BitOr)
TUTTI_DEFINE_BINARY(bit_xor, BitXor)
TUTTI_DEFINE_BINARY(shl, ShiftLeft)
TUTTI_DEFINE_BINARY(shr, ShiftRight)

}  // namespace tutti

TUTTI_OPS(bitwise, TUTTI_BINARY_ROWS(BitAnd), TUTTI_BINARY_ROWS(BitOr), TUTTI_BINARY_ROWS(BitXor),
          TUTTI_BINARY_ROWS(ShiftLeft), TUTTI_BINARY_ROWS(ShiftRight))
