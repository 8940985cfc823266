// Picked operands (OperandSpec::index) against plain loops, on every target.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/codegen/support/harness.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using testing::Buffer;
using testing::Recipe;

constexpr StrideClass kClasses[] = {StrideClass::broadcast, StrideClass::contiguous, StrideClass::strided};
constexpr int64_t kSizes[] = {0, 1, 3, 8, 15, 16, 17, 31, 33, 70};
constexpr int64_t kExtent = 5, kRows = 3;

int64_t inner_stride(StrideClass c) { return c == StrideClass::broadcast ? 0 : c == StrideClass::contiguous ? 1 : 3; }

// A table of kExtent entries of rows, the indices of every (o, i), and rows beside them. What lies between the rows of
// indices is illegal, so that a lane beyond the end of a row would be found out.
struct Scene {
  int64_t n;
  StrideClass table_class, index_class;
  Buffer table, index, rows;
  Scene(DType dtype, DType index_dtype, StrideClass table_class, StrideClass index_class, int64_t n)
      : n(n),
        table_class(table_class),
        index_class(index_class),
        table(dtype, kExtent * pick_stride() + 1),
        index(index_dtype, kRows * row_stride()),
        rows(dtype, kRows * row_stride()) {
    testing::fill_moderate(table, 1);
    testing::fill_moderate(rows, 2);
    for (int64_t k = 0; k < index.count(); ++k) store_from_int64(index.at(k), index_dtype, -1);
    for (int64_t o = 0; o < kRows; ++o) {
      for (int64_t i = 0; i < n; ++i)
        store_from_int64(index.at(index_at(o, i)), index_dtype,
                         static_cast<int64_t>(testing::mix(static_cast<uint64_t>(index_at(o, i))) % kExtent));
    }
  }
  int64_t row_stride() const { return 3 * n + 2; }
  int64_t pick_stride() const { return kRows * row_stride(); }
  int64_t index_at(int64_t o, int64_t i) const { return o * row_stride() + i * inner_stride(index_class); }
  int64_t index_of(int64_t o, int64_t i) const { return load_as_int64(index.at(index_at(o, i)), index.dtype()); }
  int64_t table_at(int64_t o, int64_t i) const {
    return o * row_stride() + i * inner_stride(table_class) + index_of(o, i) * pick_stride();
  }
  int64_t row_at(int64_t o, int64_t i) const { return o * row_stride() + i; }
  bool is_legal(int64_t o, int64_t i) const { return index_of(o, i) >= 0 && index_of(o, i) < kExtent; }
  testing::Operand table_operand() {
    return {&table, row_stride(), inner_stride(table_class), 0, pick_stride(), kExtent};
  }
  testing::Operand index_operand() { return {&index, row_stride(), inner_stride(index_class)}; }
  testing::Operand row_operand() { return {&rows, row_stride(), 1}; }
  bool guards_intact() const { return table.guards_intact() && index.guards_intact() && rows.guards_intact(); }

  // The index of every third row or element becomes one that is out of range. Whether any did.
  bool spoil() {
    const int64_t bad[] = {-1,
                           kExtent,
                           std::numeric_limits<int64_t>::min(),
                           std::numeric_limits<int64_t>::max(),
                           int64_t{kExtent} << 40,
                           -kExtent};
    bool any = false;
    for (int64_t o = 0; o < kRows; ++o) {
      for (int64_t i = o % 3; i < n; i += 3) {
        const int64_t value = bad[(o + i) % 6];
        const bool narrow = index.dtype() == DType::i32;
        store_from_int64(index.at(index_at(o, i)), index.dtype(), narrow && (value << 32) >> 32 != value ? -1 : value);
        any = true;
        if (index_class == StrideClass::broadcast) break;
      }
    }
    return any;
  }
};

KernelSpec gather_spec(DType dtype, DType index_dtype, StrideClass table, StrideClass index) {
  Recipe recipe;
  const Expr x = recipe.input(dtype, table);
  recipe.input(index_dtype, index);
  recipe.output(x, dtype);
  recipe.spec.inputs[0].index = 1;
  return recipe.finish("gather");
}

KernelSpec scatter_spec(DType dtype, DType index_dtype, StrideClass table, StrideClass index) {
  Recipe recipe;
  recipe.input(index_dtype, index);
  recipe.output(recipe.input(dtype), dtype, table);
  recipe.spec.outputs[0].index = 0;
  return recipe.finish("scatter");
}

void expect_bits(const Buffer& actual, const Buffer& expected, const std::string& where) {
  for (int64_t k = 0; k < actual.count(); ++k)
    ASSERT_EQ(actual.bits(k), expected.bits(k)) << where << " position " << k;
}

void check_gather(DType dtype, DType index_dtype, StrideClass table, StrideClass index, bool spoiled) {
  const KernelSpec spec = gather_spec(dtype, index_dtype, table, index);
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : kSizes) {
      Scene scene(dtype, index_dtype, table, index, n);
      const bool bad = spoiled && scene.spoil();
      Buffer expected = scene.rows;
      for (int64_t o = 0; o < kRows; ++o) {
        for (int64_t i = 0; i < n; ++i) {
          if (scene.is_legal(o, i)) expected.set_bits(scene.row_at(o, i), scene.table.bits(scene.table_at(o, i)));
          else if (index != StrideClass::broadcast) expected.set_bits(scene.row_at(o, i), 0);
        }
      }
      const uint32_t error =
          testing::run(spec, target, {scene.table_operand(), scene.index_operand(), scene.row_operand()}, {kRows, n});
      EXPECT_EQ(error, bad ? kIndexOutOfRange : 0u);
      EXPECT_TRUE(scene.guards_intact());
      expect_bits(scene.rows, expected,
                  fmt::format("{} by {} on {}, n {}", name_of(dtype), name_of(index_dtype), name_of(target), n));
    }
  }
}

void check_scatter(DType dtype, DType index_dtype, StrideClass table, StrideClass index, bool spoiled) {
  const KernelSpec spec = scatter_spec(dtype, index_dtype, table, index);
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : kSizes) {
      Scene scene(dtype, index_dtype, table, index, n);
      const bool bad = spoiled && scene.spoil();
      Buffer expected = scene.table;
      for (int64_t o = 0; o < kRows; ++o) {
        for (int64_t i = 0; i < n; ++i) {
          if (scene.is_legal(o, i)) expected.set_bits(scene.table_at(o, i), scene.rows.bits(scene.row_at(o, i)));
        }
      }
      const uint32_t error =
          testing::run(spec, target, {scene.index_operand(), scene.row_operand(), scene.table_operand()}, {kRows, n});
      EXPECT_EQ(error, bad ? kIndexOutOfRange : 0u);
      EXPECT_TRUE(scene.guards_intact());
      expect_bits(scene.table, expected,
                  fmt::format("{} by {} on {}, n {}", name_of(dtype), name_of(index_dtype), name_of(target), n));
    }
  }
}

class IndexedOfDType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryWidth, IndexedOfDType,
                         ::testing::Values(DType::i8, DType::boolean, DType::i16, DType::bf16, DType::i32, DType::f32,
                                           DType::i64, DType::f64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(IndexedOfDType, ReadsWhereTheIndexSays) {
  for (const DType index : {DType::i64, DType::i32}) {
    check_gather(GetParam(), index, StrideClass::contiguous, StrideClass::broadcast, false);
    check_gather(GetParam(), index, StrideClass::contiguous, StrideClass::contiguous, false);
    check_gather(GetParam(), index, StrideClass::broadcast, StrideClass::contiguous, false);
  }
}

TEST_P(IndexedOfDType, WritesWhereTheIndexSaysAndTheLastWriteStays) {
  for (const DType index : {DType::i64, DType::i32}) {
    check_scatter(GetParam(), index, StrideClass::contiguous, StrideClass::broadcast, false);
    check_scatter(GetParam(), index, StrideClass::contiguous, StrideClass::contiguous, false);
    check_scatter(GetParam(), index, StrideClass::broadcast, StrideClass::contiguous, false);
  }
}

TEST_P(IndexedOfDType, ReportsIndicesOutOfRangeAndTouchesNothingThere) {
  for (const DType index : {DType::i64, DType::i32}) {
    for (const StrideClass moves : {StrideClass::broadcast, StrideClass::contiguous}) {
      check_gather(GetParam(), index, StrideClass::contiguous, moves, true);
      check_scatter(GetParam(), index, StrideClass::contiguous, moves, true);
    }
    check_gather(GetParam(), index, StrideClass::broadcast, StrideClass::contiguous, true);
    check_scatter(GetParam(), index, StrideClass::broadcast, StrideClass::contiguous, true);
  }
}

TEST(Indexed, TakesEveryCombinationOfStrideClasses) {
  for (const StrideClass table : kClasses) {
    for (const StrideClass index : kClasses) {
      check_gather(DType::f32, DType::i64, table, index, false);
      if (table != StrideClass::broadcast || index != StrideClass::broadcast)
        check_scatter(DType::f32, DType::i64, table, index, false);
    }
  }
}

// A table without entries has no memory either.
TEST(Indexed, NeverTouchesAnEmptyTable) {
  for (const CpuTarget target : testing::targets()) {
    for (const DType dtype : {DType::i8, DType::f32}) {
      for (const StrideClass index : {StrideClass::broadcast, StrideClass::contiguous}) {
        Buffer picks(DType::i64, 40), rows(dtype, 40);
        uint32_t error = 0;
        const auto call = [&](const KernelSpec& spec, const std::vector<OperandCall>& operands) {
          error = 0;
          const KernelCall c{.operands = operands.data(), .params = nullptr, .n_inner = 37, .error = &error};
          compile_for(spec, target).entry(&c);
        };
        const OperandCall table{.data = nullptr, .inner = 1, .pick = 100, .extent = 0};
        call(gather_spec(dtype, DType::i64, StrideClass::contiguous, index),
             {table, {.data = picks.data(), .inner = 1}, {.data = rows.data(), .inner = 1}});
        EXPECT_EQ(error, kIndexOutOfRange);
        call(scatter_spec(dtype, DType::i64, StrideClass::contiguous, index),
             {{.data = picks.data(), .inner = 1}, {.data = rows.data(), .inner = 1}, table});
        EXPECT_EQ(error, kIndexOutOfRange);
      }
    }
  }
}

TEST(Indexed, RaisesNothingForRowsWithoutElements) {
  for (const CpuTarget target : testing::targets()) {
    Buffer table(DType::f32, 4), picks(DType::i64, 4), rows(DType::f32, 4);
    store_from_int64(picks.at(0), DType::i64, 77);
    const KernelSpec spec = gather_spec(DType::f32, DType::i64, StrideClass::contiguous, StrideClass::broadcast);
    EXPECT_EQ(testing::run(spec, target, {{&table, 0, 1, 0, 1, 4}, {&picks, 1}, {&rows, 1, 1}}, {3, 0}), 0u);
  }
}

TEST(Indexed, ReportsBothKindsOfErrors) {
  Recipe recipe;
  const Expr x = recipe.input(DType::i32, StrideClass::broadcast), index = recipe.input(DType::i64);
  recipe.output(apply_scalar(ScalarOp::floordiv, cast(index, DType::i32), x), DType::i32);
  recipe.spec.inputs[0].index = 1;
  const KernelSpec& spec = recipe.finish("quotient");
  for (const CpuTarget target : testing::targets()) {
    Buffer table(DType::i32, 2), picks(DType::i64, 3), out(DType::i32, 3);
    store_from_int64(table.at(1), DType::i32, 2);
    const int64_t values[] = {1, 0, 2};  // 1 / 2, a division by zero, an index out of range
    for (int64_t k = 0; k < 3; ++k) store_from_int64(picks.at(k), DType::i64, values[k]);
    const auto run = [&](int64_t n) {
      return testing::run(spec, target, {{&table, 0, 0, 0, 1, 2}, {&picks}, {&out}}, {1, n});
    };
    EXPECT_EQ(run(1), 0u);
    EXPECT_EQ(run(2), kDividedByZero);
    EXPECT_EQ(run(3), kDividedByZero | kIndexOutOfRange);
  }
}

// Reductions and scans over picked elements have the bits of the same over the elements laid out in a row.
void check_rows(LoopKind kind, StrideClass index_class) {
  const auto spec_of = [&](bool picked) {
    Recipe recipe(kind);
    const Expr x = recipe.input(DType::f32);
    recipe.input(DType::i64, index_class);
    const Expr sum = recipe.reduce(ReduceOp::sum, x);
    recipe.output(sum, DType::f32, kind == LoopKind::row ? StrideClass::broadcast : StrideClass::contiguous);
    if (kind == LoopKind::row) recipe.output(x / sum, DType::f32);
    if (picked) recipe.spec.inputs[0].index = 1;
    return recipe.finish(picked ? "picked" : "laid out");
  };
  const KernelSpec picked = spec_of(true), plain = spec_of(false);
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : {1, 16, 33, 700}) {
      Scene scene(DType::f32, DType::i64, StrideClass::contiguous, index_class, n);
      Buffer laid_out(DType::f32, kRows * scene.row_stride()),
          sums[2] = {{DType::f32, kRows * n}, {DType::f32, kRows * n}};
      Buffer parts[2] = {{DType::f32, kRows * n}, {DType::f32, kRows * n}};
      for (int64_t o = 0; o < kRows; ++o) {
        for (int64_t i = 0; i < n; ++i) laid_out.set_bits(scene.row_at(o, i), scene.table.bits(scene.table_at(o, i)));
      }
      const auto run = [&](const KernelSpec& spec, const testing::Operand& x, int which) {
        std::vector<testing::Operand> operands = {x, scene.index_operand(), {&sums[which], n, 1}};
        if (kind == LoopKind::row) operands.push_back({&parts[which], n, 1});
        return testing::run(spec, target, operands, {kRows, n});
      };
      EXPECT_EQ(run(picked, scene.table_operand(), 0), 0u);
      EXPECT_EQ(run(plain, {&laid_out, scene.row_stride(), 1}, 1), 0u);
      expect_bits(sums[0], sums[1], fmt::format("sums on {}, n {}", name_of(target), n));
      expect_bits(parts[0], parts[1], fmt::format("parts on {}, n {}", name_of(target), n));
      scene.spoil();
      EXPECT_EQ(run(picked, scene.table_operand(), 0), kIndexOutOfRange);
    }
  }
}

TEST(Indexed, ReducesPickedRows) { check_rows(LoopKind::row, StrideClass::broadcast); }
TEST(Indexed, ReducesPickedElements) { check_rows(LoopKind::row, StrideClass::contiguous); }
TEST(Indexed, ScansPickedRows) { check_rows(LoopKind::scan, StrideClass::broadcast); }
TEST(Indexed, ScansPickedElements) { check_rows(LoopKind::scan, StrideClass::contiguous); }

}  // namespace
}  // namespace tutti::codegen
