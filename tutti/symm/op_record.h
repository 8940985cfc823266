// OpRecord: a rank's description of an op on symmetric memory, published before any data is used. It must match on all
// ranks.
//
// A record is plain bytes in shared memory. Its fingerprint is stored next to the number of the meeting, so ranks that
// agree compare only one word each; the records are read only when the words differ, to name the field that differs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tutti/core/reduce_op.h"
#include "tutti/core/shape.h"

namespace tutti::comm::symm {

// Every op of symm/ops. An op makes its calls with its own value, so whoever loops over these meets all ops.
enum class SymmOp : uint8_t {
  all_gather,
  reduce_scatter,
  one_shot_all_reduce,
  two_shot_all_reduce,
  all_reduce,
  all_gather_matmul,
  matmul_reduce_scatter,
  all_to_all_v,
};
inline constexpr int kNumSymmOps = static_cast<int>(SymmOp::all_to_all_v) + 1;
std::string_view name_of(SymmOp op);
bool reduces(SymmOp op);

// Where the tensor of a rank lies.
enum class OpMemory : uint8_t {
  none,            // not said, or no bytes
  workspace,       // copied to byte `offset` of the piece of workspace number `place`
  more_workspace,  // to be copied to a piece that the ranks have yet to meet for
  symmetric,       // read where it is: byte `offset` of the memory number `place`
  not_met,         // in symmetric memory for which the ranks have yet to meet
};

struct OpRecord {
  SymmOp op = SymmOp::all_gather;
  ReduceKind reduce = ReduceKind::sum;
  DType dtype = DType::u8;
  OpMemory memory = OpMemory::none;
  int8_t algorithm = -1;  // in algorithms_of(the op); -1: it has one
  bool any_rows = false;  // ranks may have different extents of dim 0
  int8_t ndim = -1;
  int64_t sizes[kMaxDims] = {};
  int64_t place = 0;
  int64_t offset = 0;

  void describe_tensor(DType dtype, const Extents& sizes);
  // Equal on two ranks when their calls fit together.
  uint64_t fingerprint() const;
};

// "all_reduce(f32 [4, 3], sum, two_shot)", "all_to_all_v(i64 [any, 8])".
std::string describe(const OpRecord& record);

// The first field in which two calls do not fit together and what each says there, such as {"dtypes", "f32", "i32"}.
using Difference = std::array<std::string, 3>;
std::optional<Difference> difference(const OpRecord& a, const OpRecord& b);
// "the dtypes differ: f32 on rank 0, i32 on rank 2; rank 0 called all_reduce(...), rank 2 called all_reduce(...)", for
// the first rank that differs from rank 0. `records` holds the record of each rank.
std::string mismatch_text(std::span<const OpRecord> records);

}  // namespace tutti::comm::symm
