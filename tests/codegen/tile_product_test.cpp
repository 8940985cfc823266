#include "tutti/codegen/gemm/tile_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/codegen/gemm/gemm.h"

namespace tutti::codegen {
namespace {

std::vector<float> values(int64_t count, uint32_t state) {
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) x = static_cast<float>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
  return v;
}

struct Problem {
  int64_t rows, columns, k;
  int64_t width = whole_registers(columns, DType::f32);
  std::vector<float> a = values(rows * k, 1), b = values(k * width, 2);  // a [rows][k], b [k][width]

  std::vector<float> by_gemm(const ContractionTree& tree) const {
    std::vector<float> c(static_cast<size_t>(rows * columns));
    gemm(rows, columns, k, {a.data(), DType::f32, k, 1}, {b.data(), DType::f32, width, 1},
         {c.data(), DType::f32, columns}, tree);
    return c;
  }
  void expect_bits(const std::vector<float>& c, const std::vector<float>& expected) const {
    for (int64_t i = 0; i < rows; ++i)
      EXPECT_EQ(std::memcmp(c.data() + i * width, expected.data() + i * columns, static_cast<size_t>(columns) * 4), 0)
          << rows << "x" << columns << "x" << k << " row " << i;
  }
};

TEST(TileProduct, HasTheBitsOfGemm) {
  for (const Problem& p :
       {Problem{8, 48, 64}, Problem{1, 1, 1}, Problem{7, 16, 300}, Problem{65, 100, 128}, Problem{13, 33, 1000}}) {
    const ContractionTree tree = ContractionTree::halving(p.k);
    const TileProduct product(DType::f32, p.rows);
    std::vector<float> packed(static_cast<size_t>(product.packed_size(p.k))), c(static_cast<size_t>(p.rows * p.width)),
        pending(static_cast<size_t>(tree.depth() * p.rows * p.width));
    product.pack({p.a.data(), DType::f32, 1, p.k}, p.k, packed.data());
    product.run({.a = packed.data(),
                 .b = p.b.data(),
                 .b_stride = p.width,
                 .c = c.data(),
                 .c_stride = p.width,
                 .columns = p.width,
                 .leaf_lengths = tree.leaf_lengths.data(),
                 .merges = tree.merges.data(),
                 .leaves = static_cast<int64_t>(tree.leaf_lengths.size()),
                 .stack = pending.data(),
                 .depth = tree.depth()});
    p.expect_bits(c, p.by_gemm(tree));
  }
}

// The sum over leaves of `leaf` each that are handed over one by one; some are absent: as if they had no k.
std::vector<float> by_leaves(const Problem& p, int32_t leaf, const std::vector<bool>& exists) {
  const ContractionTree tree = ContractionTree::halving(p.k, leaf);
  const TileProduct product(DType::f32, p.rows);
  std::vector<float> packed(static_cast<size_t>(product.packed_size(p.k))), c(static_cast<size_t>(p.rows * p.width)),
      pending(static_cast<size_t>(tree.depth() * p.rows * p.width));
  const auto call = [&](int64_t k, const int32_t* length, const uint8_t* merges, int64_t waiting, bool is_last) {
    product.run({.a = packed.data(),
                 .b = p.b.data() + k * p.width,
                 .b_stride = p.width,
                 .c = c.data(),
                 .c_stride = p.width,
                 .columns = p.width,
                 .leaf_lengths = length,
                 .merges = merges,
                 .is_last = is_last,
                 .stack = pending.data(),
                 .depth = tree.depth(),
                 .pending = waiting});
  };
  PendingSums sums;
  int64_t k = 0;
  for (size_t i = 0; i < tree.leaf_lengths.size(); k += tree.leaf_lengths[i++]) {
    const PendingSums::Step step = sums.next(exists[i], tree.merges[i]);
    if (!step.run) continue;
    const int32_t length = exists[i] ? tree.leaf_lengths[i] : 0;
    product.pack({p.a.data() + k, DType::f32, 1, p.k}, length, packed.data());
    call(k, &length, &step.merges, step.pending, false);
  }
  const int32_t none = 0;
  const uint8_t merges = static_cast<uint8_t>(sums.pending());
  call(0, &none, &merges, sums.pending(), true);
  return c;
}

TEST(TileProduct, TakesTheContractionLeafByLeaf) {
  const Problem p{10, 40, 200};
  p.expect_bits(by_leaves(p, 30, std::vector<bool>(8, true)), p.by_gemm(ContractionTree::halving(p.k, 30)));
}

TEST(TileProduct, LeavesOutLeavesThatAreAbsent) {
  const Problem p{9, 24, 256};
  for (uint32_t pattern = 1; pattern < 256; ++pattern) {
    std::vector<bool> exists;
    std::vector<int32_t> counts;
    Problem present{9, 24, 0};
    for (int leaf = 0; leaf < 8; ++leaf) {
      exists.push_back(pattern >> leaf & 1);
      counts.push_back(exists.back() ? 32 : 0);
    }
    // The same tree over the k that exist: an empty range is the identity.
    for (int64_t k = 0; k < p.k; ++k) {
      if (!exists[static_cast<size_t>(k / 32)]) continue;
      present.b.insert(present.b.end(), p.b.begin() + k * p.width, p.b.begin() + (k + 1) * p.width);
      ++present.k;
    }
    for (int64_t i = 0; i < p.rows; ++i)
      for (int64_t k = 0; k < p.k; ++k)
        if (exists[static_cast<size_t>(k / 32)]) present.a.push_back(p.a[static_cast<size_t>(i * p.k + k)]);
    p.expect_bits(by_leaves(p, 32, exists), present.by_gemm(ContractionTree::ranges(counts)));
  }
}

TEST(TileProduct, LeavesOutPartsThatAreZero) {
  Problem p{20, 70, 100};
  // Row i of A begins at k = 2 i; what lies before is 0.
  for (int64_t i = 0; i < p.rows; ++i) std::fill_n(p.a.begin() + i * p.k, 2 * i, 0.0f);
  const ContractionTree tree = ContractionTree::halving(p.k);
  const TileProduct product(DType::f32, p.rows);
  std::vector<float> packed(static_cast<size_t>(product.packed_size(p.k))),
      c(static_cast<size_t>(p.rows * p.width), 5.0f);
  product.pack({p.a.data(), DType::f32, 1, p.k}, p.k, packed.data());
  int64_t skipped = 0;
  const auto part_of = [&](int64_t row, int64_t, int64_t column, int64_t) -> TilePart {
    if (column > 0 && row == 0) return ++skipped, TilePart{0, 0};
    return {2 * row, p.k};
  };
  const TilePartOf part(part_of);
  product.run({.a = packed.data(),
               .b = p.b.data(),
               .b_stride = p.width,
               .c = c.data(),
               .c_stride = p.width,
               .columns = p.width,
               .leaf_lengths = tree.leaf_lengths.data(),
               .merges = tree.merges.data(),
               .part = &part});
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(c[static_cast<size_t>(p.columns - 1)], 5.0f);  // not written
  const std::vector<float> expected = p.by_gemm(tree);
  for (int64_t i = 0; i < p.rows; ++i)
    EXPECT_EQ(c[static_cast<size_t>(i * p.width)], expected[static_cast<size_t>(i * p.columns)]);
  for (int64_t j = 0; j < p.columns; ++j)
    EXPECT_EQ(c[static_cast<size_t>(19 * p.width + j)], expected[static_cast<size_t>(19 * p.columns + j)]);
}

TEST(PendingSums, NothingWaitsWhenAllLeavesAreAbsent) {
  PendingSums sums;
  for (const uint8_t merges : {0, 1, 0, 2}) EXPECT_FALSE(sums.next(false, merges).run);
  EXPECT_EQ(sums.pending(), 0);
}

}  // namespace
}  // namespace tutti::codegen
