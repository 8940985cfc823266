// Ops on symmetric memory, on both live backends.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>

#include "tests/symm/support/ranks.h"
#include "tutti/codegen/combine.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/matmul.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/ops/all_gather.h"
#include "tutti/symm/ops/all_gather_matmul.h"
#include "tutti/symm/ops/all_to_all_v.h"
#include "tutti/symm/ops/matmul_reduce_scatter.h"
#include "tutti/symm/ops/one_shot_all_reduce.h"
#include "tutti/symm/ops/reduce_scatter.h"
#include "tutti/symm/ops/two_shot_all_reduce.h"
#include "tutti/symm/tuning.h"
#include "tutti/symm/workspace.h"

namespace tutti::comm::symm {
namespace {

class SymmOps : public testing::TestWithParam<const char*> {
 protected:
  void on(int size, const RankFunction& fn) const { run_on(GetParam(), size, fn); }
};
INSTANTIATE_TEST_SUITE_P(Symm, SymmOps, testing::ValuesIn(live_backends()),
                         [](const auto& info) { return info.param; });

// Magnitudes differ so that another order of adding shows.
Tensor values_of(int rank, const Extents& sizes, DType dtype, const SymmGroup& group = {}) {
  const Tensor t = group ? empty_symm(sizes, dtype, kCpu, {.group = group}) : Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double mantissa = 1.0 + static_cast<double>((i * 7919 + rank * 104729) % 100003) / 100003.0;
    const double value = is_floating(dtype) ? std::ldexp((i + rank) % 2 ? mantissa : -mantissa,
                                                         static_cast<int>((i * 13 + rank * 5) % 9) - 4)
                                            : static_cast<double>((i * 31 + rank * 7) % 97);
    store_from_double(static_cast<std::byte*>(t.raw_data()) + i * itemsize(dtype), dtype, value);
  }
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.extents() == b.extents() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

// The reduction on one rank, by the rule that all transports share.
Tensor reduced(int ranks, const Extents& sizes, DType dtype, ReduceKind kind) {
  std::vector<Tensor> kept;
  std::vector<const std::byte*> addends;
  for (int r = 0; r < ranks; ++r) {
    kept.push_back(values_of(r, sizes, dtype));
    addends.push_back(static_cast<const std::byte*>(kept.back().raw_data()));
  }
  Tensor out = Tensor::empty(sizes, dtype);
  combine(kind, dtype, addends, {}, out.numel(), static_cast<std::byte*>(out.raw_data()));
  return out;
}

TEST_P(SymmOps, AllReduceHasTheBitsOfTheTreeWithEitherAlgorithm) {
  for (const int size : {2, 3, 4}) {
    on(size, [](const World& world) {
      const SymmGroup group = world.group();
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
        for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg, ReduceKind::max, ReduceKind::product}) {
          const Tensor expected = reduced(world.size, {37, 5}, dtype, kind);
          const Tensor symmetric = values_of(world.rank, {37, 5}, dtype, group),
                       plain = values_of(world.rank, {37, 5}, dtype);
          EXPECT_TRUE(same_bits(one_shot_all_reduce(symmetric, group, kind), expected))
              << name_of(dtype) << name_of(kind);
          EXPECT_TRUE(same_bits(one_shot_all_reduce(plain, group, kind), expected));
          EXPECT_TRUE(same_bits(symmetric, plain)) << "the input was written";
          two_shot_all_reduce(symmetric, group, kind);
          two_shot_all_reduce(plain, group, kind);
          EXPECT_TRUE(same_bits(symmetric, expected)) << name_of(dtype) << name_of(kind);
          EXPECT_TRUE(same_bits(plain, expected));
        }
      }
      const Tensor large = values_of(world.rank, {300000}, DType::f32),
                   expected = reduced(world.size, {300000}, DType::f32, ReduceKind::sum);
      all_reduce(large, group);
      EXPECT_TRUE(same_bits(large, expected));
      const Tensor few = values_of(world.rank, {1}, DType::f32);
      all_reduce(few, group);
      EXPECT_TRUE(same_bits(few, reduced(world.size, {1}, DType::f32, ReduceKind::sum)));
      EXPECT_EQ(one_shot_all_reduce(Tensor::empty({0}), group).numel(), 0);
    });
  }
}

TEST_P(SymmOps, GatherAndScatterMoveTheRightRows) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor gathered = all_gather(values_of(world.rank, {2, 3}, DType::i16), group);
    EXPECT_EQ(gathered.extents(), (Extents{6, 3}));
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(same_bits(gathered.view_as({2, 3}, {3, 1}, r * 6), values_of(r, {2, 3}, DType::i16)));
    }
    EXPECT_EQ(all_gather(Tensor::scalar<float>(static_cast<float>(world.rank)), group).data<float>()[2], 2.0f);
    const Tensor part = reduce_scatter(values_of(world.rank, {6, 50}, DType::bf16, group), group);
    const Tensor whole = reduced(3, {6, 50}, DType::bf16, ReduceKind::sum);
    EXPECT_TRUE(same_bits(part, whole.view_as({2, 50}, {50, 1}, world.rank * 100)));
    EXPECT_NE(complaint_of([&] { reduce_scatter(values_of(0, {4}, DType::f32), group); }).find("does not divide by 3"),
              std::string::npos);
  });
}

TEST_P(SymmOps, FusedProductsHaveTheBitsOfTheParts) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    for (const int64_t m : {3, 200}) {  // below and above the border of the tuning table
      const Tensor a = values_of(world.rank, {m, 150}, DType::f32);
      const std::vector<Tensor> bs{values_of(7, {150, 20}, DType::f32), values_of(8, {150, 3}, DType::f32)};
      const auto result = all_gather_matmul(a, bs, group);
      const Tensor gathered = all_gather(a, group);
      EXPECT_TRUE(same_bits(result.gathered, gathered));
      for (size_t i = 0; i < bs.size(); ++i) EXPECT_TRUE(same_bits(result.products[i], matmul(gathered, bs[i])));
    }
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor a = values_of(world.rank, {8, 150}, dtype), b = values_of(world.rank + 5, {150, 20}, dtype);
      const Tensor expected = cast(reduce_scatter(matmul(a, b, {.out_dtype = DType::f32}), group), dtype);
      EXPECT_TRUE(same_bits(matmul_reduce_scatter(a, b, group), expected)) << name_of(dtype);
    }
    EXPECT_NE(complaint_of([&] {
                matmul_reduce_scatter(Tensor::empty({3, 2}), Tensor::empty({2, 2}), group);
              }).find("do not divide"),
              std::string::npos);
    EXPECT_NE(complaint_of([&] { all_gather_matmul(Tensor::empty({3}), {}, group); }).find("expected 2 dims"),
              std::string::npos);
    const Tensor out = Tensor::empty({4, 20}, DType::f32), wide = values_of(0, {8, 150}, DType::bf16),
                 b = values_of(1, {150, 20}, DType::bf16);
    matmul_reduce_scatter_into(out, wide, b, group);  // not rounded
    EXPECT_TRUE(same_bits(out, reduce_scatter(matmul(wide, b, {.out_dtype = DType::f32}), group)));
    EXPECT_NE(complaint_of([&] {
                matmul_reduce_scatter_into(Tensor::empty({3, 20}, DType::f32), wide, b, group);
              }).find("expected a dense [4, 20] of f32"),
              std::string::npos);
    EXPECT_NE(complaint_of([&] {
                matmul_into(Tensor::empty({8, 3}, DType::f32), wide, b);
              }).find("expected [m, k], [k, n] and a dense [m, n]"),
              std::string::npos);
  });
}

TEST_P(SymmOps, RowsWithUnevenSplitsArriveInRankOrder) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    for (int round = 0; round < 3; ++round) {
      // Rank s sends (s + d + round) % 3 rows to rank d; a row says who sends it to whom.
      std::vector<int64_t> splits;
      std::vector<int32_t> rows;
      for (int d = 0; d < 3; ++d) {
        splits.push_back((world.rank + d + round) % 3);
        for (int64_t i = 0; i < splits.back(); ++i)
          rows.insert(rows.end(), {100 * world.rank + 10 * d + static_cast<int>(i), 0});
      }
      const Tensor input = Tensor::of<int32_t>(rows, {static_cast<int64_t>(rows.size() / 2), 2});
      const auto result = all_to_all_v(input, splits, group);
      int64_t at = 0;
      for (int s = 0; s < 3; ++s) {
        EXPECT_EQ(result.output_splits[s], (s + world.rank + round) % 3);
        for (int64_t i = 0; i < result.output_splits[s]; ++i) {
          EXPECT_EQ(result.output.data<int32_t>()[2 * at++], 100 * s + 10 * world.rank + i);
        }
      }
      EXPECT_EQ(result.output.extent(0), at);
    }
    const std::vector<int64_t> wrong{1, 1, 1};
    EXPECT_NE(complaint_of([&] { all_to_all_v(Tensor::empty({2, 2}), wrong, group); }).find("with the sum 2"),
              std::string::npos);
    const std::vector<int64_t> even{1, 1, 1};
    EXPECT_NE(complaint_of([&] {
                all_to_all_v(Tensor::empty({3, 2 + world.rank}), even, group);
              }).find("the shapes differ: [any, 2] on rank 0, [any, 3] on rank 1"),
              std::string::npos);
  });
}

TEST_P(SymmOps, AnOpDoesNotDisturbALeaseThatIsHeld) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const auto held = get_symm_mem_workspace(group, 4096);
    const Tensor mine = held.view(world.rank, {1024}, DType::f32);
    for (int i = 0; i < 1024; ++i) mine.data<float>()[i] = static_cast<float>(i);
    const Tensor t = values_of(world.rank, {5000}, DType::f32);
    two_shot_all_reduce(t, group);
    EXPECT_TRUE(same_bits(t, reduced(2, {5000}, DType::f32, ReduceKind::sum)));
    for (int i = 0; i < 1024; ++i) EXPECT_EQ(mine.data<float>()[i], static_cast<float>(i));
  });
}

TEST(SymmTuning, TablesAreReadWrittenAndChecked) {
  const TuningTable table =
      TuningTable::parse("# measured\nall_reduce 2 1000 one_shot\n\nall_reduce 0 inf two_shot # rest\n");
  EXPECT_EQ(table.choose("all_reduce", 2, 1000), "one_shot");
  EXPECT_EQ(table.choose("all_reduce", 2, 1001), "two_shot");
  EXPECT_EQ(table.choose("all_reduce", 4, 10), "two_shot");
  EXPECT_EQ(table.choose("all_gather_matmul", 4, 10), "chunked");
  EXPECT_EQ(TuningTable::parse(table.to_text()).to_text(), table.to_text());
  EXPECT_NE(complaint_of([] { TuningTable::parse("all_reduce 2 x one_shot"); }).find("line 1: 'x' is no whole number"),
            std::string::npos);
  EXPECT_NE(complaint_of([] { TuningTable::parse("all_reduce 2 5 one_shoot"); }).find("did you mean 'one_shot'"),
            std::string::npos);
  EXPECT_NE(complaint_of([] { TuningTable::parse("all_red 2 5 one_shot"); }).find("all_reduce"), std::string::npos);
  EXPECT_EQ(TuningTable::defaults().choose("all_reduce", 2, 1 << 10), "one_shot");
  EXPECT_EQ(TuningTable::defaults().choose("all_reduce", 4, 64 << 20), "two_shot");
}

}  // namespace
}  // namespace tutti::comm::symm
