// Placement: how a tensor is distributed along one axis of a device mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// The reduction that combines the parts of a Partial value.
enum class PartialOp : uint8_t {
  sum,
  avg,
  max,
  min,
  prod,
  band,
  bor,
  bxor
};  // the last three: integers and booleans only
inline constexpr int kNumPartialOps = 8;
std::string_view name_of(PartialOp op);
// UsageError lists the known names.
PartialOp partial_op_from_name(std::string_view name);

class Placement {
 public:
  enum class Kind : uint8_t { replicate, shard, partial };

  // Every rank holds the whole tensor.
  static constexpr Placement replicate() { return {}; }
  // Each rank holds a range of dim `dim`. With `pieces` > 1 the dim is first divided into that many equal pieces, and
  // each rank holds its range of every piece. This arises when two dims are merged and the inner one is sharded.
  static constexpr Placement shard(int dim, int64_t pieces = 1) {
    Placement p;
    p.kind_ = Kind::shard;
    p.dim_ = static_cast<int8_t>(dim);
    p.pieces_ = pieces;
    return p;
  }
  // Each rank holds a partial value; reducing them with `op` gives the tensor.
  static constexpr Placement partial(PartialOp op = PartialOp::sum) {
    Placement p;
    p.kind_ = Kind::partial;
    p.op_ = op;
    return p;
  }

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_replicate() const { return kind_ == Kind::replicate; }
  constexpr bool is_shard() const { return kind_ == Kind::shard; }
  constexpr bool is_partial() const { return kind_ == Kind::partial; }
  constexpr int dim() const { return dim_; }            // for a shard placement
  constexpr int64_t pieces() const { return pieces_; }  // for a shard placement
  constexpr PartialOp op() const { return op_; }        // for a partial placement
  friend constexpr bool operator==(const Placement&, const Placement&) = default;

 private:
  Kind kind_ = Kind::replicate;
  PartialOp op_ = PartialOp::sum;
  int8_t dim_ = 0;
  int64_t pieces_ = 1;
};

// "R", "S(0)", "S(0, 3 pieces)", "P(sum)".
std::string to_string(const Placement& placement);

}  // namespace tutti
