// LoopPlan: which loops a kernel gets for operands that lie one way or another.
#include "tutti/ops/engine/loop_plan.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::StrideClass;

// A plan over `sizes` whose first `inputs` operands are read; strides in elements of f32.
LoopPlan plan_over(const Extents& sizes, size_t inputs, std::initializer_list<Extents> strides, uint32_t per_row = 0) {
  LoopPlan plan;
  plan.nest.sizes = sizes;
  plan.nest.logical = contiguous_strides(sizes);
  for (const Extents& s : strides) plan.nest.operands.push_back({nullptr, 4, s});
  plan.kind = LoopKind::row;
  plan.inputs = inputs;
  plan.per_row = per_row;
  return plan;
}

TEST(LoopPlanTest, DenseOperandsAreOneLoop) {
  LoopPlan plan = plan_over({2, 3, 4}, 1, {{12, 4, 1}, {12, 4, 1}});
  plan_pointwise(plan);
  EXPECT_EQ(plan.kind, LoopKind::pointwise);
  EXPECT_EQ(plan.outer_end, 0);
  EXPECT_EQ(plan.run.n_inner, 24);
  EXPECT_TRUE(plan.run.split_inner);
  EXPECT_EQ(plan.stride_class(0), StrideClass::contiguous);
}

TEST(LoopPlanTest, AnOperandThatRepeatsKeepsItsDimApart) {
  LoopPlan plan = plan_over({6, 4}, 2, {{4, 1}, {1, 0}, {4, 1}});
  plan_pointwise(plan);
  EXPECT_EQ(plan.outer_end, 1);
  EXPECT_EQ(plan.run.n_inner, 4);
  EXPECT_EQ(plan.stride_class(1), StrideClass::broadcast);
  EXPECT_EQ(plan.operand(2, DType::bf16).dtype, DType::bf16);
}

TEST(LoopPlanTest, AScalarIsALoopOfOneElement) {
  LoopPlan plan = plan_over({}, 1, {{}, {}});
  plan_pointwise(plan);
  EXPECT_EQ(plan.run.n_inner, 1);
  EXPECT_EQ(plan.stride_class(1), StrideClass::contiguous) << "an output of one element has no stride to tell";
}

TEST(LoopPlanTest, RowsOfTheLastDimStayRows) {
  LoopPlan plan = plan_over({5, 7}, 1, {{7, 1}, {1, 0}}, 1);
  const int64_t row[] = {1};
  ASSERT_TRUE(plan_rows(plan, row, may_be_columns(plan.per_row, 1)));
  EXPECT_EQ(plan.kind, LoopKind::row);
  EXPECT_EQ(plan.outer_end, 1);
  EXPECT_EQ(plan.run.n_inner, 7);
  EXPECT_EQ(plan.stride_class(1), StrideClass::broadcast);
}

TEST(LoopPlanTest, RowsThatLieAcrossAreColumns) {
  LoopPlan plan = plan_over({5, 7}, 1, {{7, 1}, {0, 1}}, 1);  // reduces dim 0 of a dense tensor
  const int64_t row[] = {0};
  ASSERT_TRUE(plan_rows(plan, row, true));
  EXPECT_EQ(plan.kind, LoopKind::column);
  EXPECT_EQ(plan.run.n_inner, 7);
  EXPECT_EQ(plan.run.n_reduce, 5);
  EXPECT_FALSE(plan.operand(1, DType::f32).along_reduced);
}

TEST(LoopPlanTest, AColumnThatIsStoredWholeMustLieAcrossToo) {
  const int64_t row[] = {0};
  LoopPlan across = plan_over({5, 7}, 1, {{7, 1}, {7, 1}});
  ASSERT_TRUE(plan_rows(across, row, true));
  EXPECT_EQ(across.kind, LoopKind::column);
  EXPECT_TRUE(across.operand(1, DType::f32).along_reduced);
  LoopPlan along = plan_over({5, 7}, 1, {{7, 1}, {1, 5}});
  ASSERT_TRUE(plan_rows(along, row, true));
  EXPECT_EQ(along.kind, LoopKind::row);
}

TEST(LoopPlanTest, FewRowsAndScansAreNeverColumns) {
  const int64_t row[] = {0};
  LoopPlan few = plan_over({5, 3}, 1, {{3, 1}, {0, 1}}, 1);
  ASSERT_TRUE(plan_rows(few, row, true));
  EXPECT_EQ(few.kind, LoopKind::row);
  LoopPlan scan = plan_over({5, 7}, 1, {{7, 1}, {7, 1}});
  scan.kind = LoopKind::scan;
  ASSERT_TRUE(plan_rows(scan, row, true));
  EXPECT_EQ(scan.kind, LoopKind::scan);
  LoopPlan kept = plan_over({5, 7}, 1, {{7, 1}, {0, 1}}, 1);
  ASSERT_TRUE(plan_rows(kept, row, false));
  EXPECT_EQ(kept.kind, LoopKind::row);
}

TEST(LoopPlanTest, RowDimsThatDoNotMergeAreRefused) {
  LoopPlan plan = plan_over({4, 5, 6}, 1, {{30, 6, 1}, {0, 1, 0}}, 1);
  const int64_t apart[] = {0, 2};
  EXPECT_FALSE(plan_rows(plan, apart, true));
}

TEST(LoopPlanTest, ColumnsNeedOutputsOfOneKind) {
  EXPECT_TRUE(may_be_columns(0b00, 2));
  EXPECT_TRUE(may_be_columns(0b11, 2));
  EXPECT_FALSE(may_be_columns(0b01, 2));
  EXPECT_FALSE(may_be_columns(0b11 | 1u << 31, 2)) << "outputs that read the row itself";
}

}  // namespace
}  // namespace tutti
