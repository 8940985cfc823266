// The tree in which a contraction over k is summed (numerics contract, N3 and N5).
//
// A leaf is a range of consecutive k, one chain of fused multiply-adds per output element in ascending k (of two
// bf16 operands: in pairs, the odd one first). The chain
// starts at -0.0, the identity of a sum, so it equals the chain that starts with the first product. Partial sums are
// combined left + right.
//
// A tree is stored in postfix order: after leaf i, the newest pending partial sum is added in front of the current one
// merges[i] times; what results is pending until a later leaf takes it. Trees of neighbouring ranges therefore compose:
// a rank that holds one subtree's k computes that subtree's value, and the values combine to the bits of the whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::codegen {

// Leaf size of dense contractions, in k.
inline constexpr int32_t kContractionLeaf = 128;

// kContractionLeaf, unless a test has lowered it.
int32_t contraction_leaf();

// Lowers contraction_leaf() of the whole process while it lives, so that tiny models have trees that can be cut.
class ContractionLeafForTests {
 public:
  explicit ContractionLeafForTests(int32_t leaf);
  ~ContractionLeafForTests();
  ContractionLeafForTests(const ContractionLeafForTests&) = delete;
  ContractionLeafForTests& operator=(const ContractionLeafForTests&) = delete;

 private:
  int32_t previous_;
};

struct ContractionTree {
  std::vector<int32_t> leaf_lengths;  // all >= 1; their sum is k
  std::vector<uint8_t> merges;        // one per leaf

  // The tree of k elements: n > leaf splits into ceil(n/2) and floor(n/2). k = 0 has no leaves; its value is -0.0.
  static ContractionTree halving(int64_t k, int32_t leaf = contraction_leaf());

  // The tree of a ragged contraction: range r holds counts[r] consecutive k (the rows present in a fixed range of token
  // positions) and is one leaf; n ranges split into ceil(n/2) and floor(n/2) ranges. An empty range is the identity:
  // its node is absent. All ranges empty: as k = 0.
  static ContractionTree ranges(std::span<const int32_t> counts);

  int64_t k() const;
  // The most partial sums that are pending at once. UsageError when the tree is malformed.
  int32_t depth() const;
};

// Several contractions that are summed as one, such as the gradient of the input of layers that read it together: sum
// over i of a_i b_i with lengths k_i. All lengths are halved at the same time, into ceil and floor, until what is left
// of them together fits a leaf; a leaf is one chain over the piece of the first contraction, then that of the second,
// and so on. A part of all of them that is a node of this tree is the same tree over shorter lengths, so ranks can hold
// parts as they can of one contraction.
struct InterleavedContraction {
  struct Piece {
    int32_t source;   // which contraction
    int32_t length;   // >= 1
    int64_t first_k;  // of that contraction
  };
  ContractionTree tree;       // over all k in the order of the chains
  std::vector<Piece> pieces;  // in that order; each is inside one leaf

  static InterleavedContraction halving(std::span<const int64_t> lengths, int32_t leaf = contraction_leaf());
};

}  // namespace tutti::codegen
