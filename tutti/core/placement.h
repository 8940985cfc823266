// Placement: how a tensor lies along one axis of a device mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// How the parts of a Partial value combine to the value.
enum class PartialOp : uint8_t { sum, avg, max, min, prod };
inline constexpr int kNumPartialOps = 5;
std::string_view name_of(PartialOp op);
// UsageError lists the known names.
PartialOp partial_op_from_name(std::string_view name);

class Placement {
 public:
  enum class Kind : uint8_t { replicate, shard, partial };

  // Every rank holds the whole tensor.
  static constexpr Placement replicate() { return {}; }
  // Each rank holds a range of dim `dim`. With `pieces` > 1 the dim is first cut into that many equal pieces and each
  // rank holds its range of every piece: the inner factor of a dim that was made by merging two.
  static constexpr Placement shard(int dim, int64_t pieces = 1) {
    Placement p;
    p.kind_ = Kind::shard;
    p.dim_ = static_cast<int8_t>(dim);
    p.pieces_ = pieces;
    return p;
  }
  // Each rank holds a term; the value is their combination.
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
  constexpr int dim() const { return dim_; }          // of a shard
  constexpr int64_t pieces() const { return pieces_; }  // of a shard
  constexpr PartialOp op() const { return op_; }      // of a partial
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
