#include "tutti/codegen/kernel_check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/codegen/support/harness.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

using testing::Recipe;

void expect_refused(const KernelSpec& spec, const std::string& part) {
  try {
    check_kernel(spec);
    FAIL() << "accepted; expected: " << part;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'k'"), std::string::npos) << error.what();
  }
}

TEST(KernelCheck, NamesTheOutputWhoseDTypeDiffers) {
  Recipe recipe;
  recipe.output(recipe.input(DType::f32), DType::i64);
  expect_refused(recipe.finish("k"), "output 0 stores i64 but its value is f32; cast it to i64");
}

TEST(KernelCheck, NamesTheArgumentThatIsNotThere) {
  Recipe recipe;
  recipe.output(recipe.pool.arg(3, DType::f32), DType::f32);
  expect_refused(recipe.finish("k"), "argument 3 of 0");
}

TEST(KernelCheck, RefusesMixedOperands) {
  Recipe recipe;
  const Expr x = recipe.input(DType::f32), y = recipe.input(DType::i64);
  recipe.pool.push({.op = ScalarOp::add, .dtype = DType::f32, .operands = {x.id(), y.id(), 0}});
  recipe.output(x, DType::f32);
  expect_refused(recipe.finish("k"), "add of f32 and i64");
}

TEST(KernelCheck, RefusesReductionsInPointwiseKernels) {
  Recipe recipe;
  recipe.output(recipe.reduce(ReduceOp::sum, recipe.input(DType::f32)), DType::f32);
  expect_refused(recipe.finish("k"), "use LoopKind::row");
}

TEST(KernelCheck, RefusesAValueThatNeedsItsOwnReduction) {
  Recipe recipe(LoopKind::row);
  const Expr x = recipe.input(DType::f32);
  const Expr sum = recipe.reduce(ReduceOp::sum, x);
  recipe.spec.reductions[0].value = (x - sum).id();
  recipe.output(sum, DType::f32, StrideClass::broadcast);
  expect_refused(recipe.finish("k"), "uses a reduction that is not finished");
}

TEST(KernelCheck, RefusesALonelySoftmaxMax) {
  Recipe recipe(LoopKind::row);
  recipe.output(recipe.reduce(ReduceOp::softmax_max, recipe.input(DType::f32)), DType::f32, StrideClass::broadcast);
  expect_refused(recipe.finish("k"), "softmax_max must be followed by softmax_sum or softmax_rest");
}

TEST(KernelCheck, RefusesARowOutputThatChangesAlongTheRow) {
  Recipe recipe(LoopKind::row);
  recipe.output(recipe.input(DType::f32), DType::f32, StrideClass::broadcast);
  expect_refused(recipe.finish("k"), "written once per row but its value changes along it");
}

TEST(KernelCheck, RefusesElementsInColumnOutputs) {
  Recipe recipe(LoopKind::column);
  const Expr x = recipe.input(DType::f32);
  recipe.output(recipe.reduce(ReduceOp::sum, x) + x, DType::f32);
  expect_refused(recipe.finish("k"), "may use reductions and params only");
}

TEST(KernelCheck, TakesElementsInColumnOutputsAlongTheReducedDim) {
  Recipe recipe(LoopKind::column);
  const Expr x = recipe.input(DType::f32);
  recipe.output(recipe.reduce(ReduceOp::sum, x) + x, DType::f32);
  const std::string once = recipe.finish("k").key();
  recipe.spec.outputs[0].along_reduced = true;
  EXPECT_NO_THROW(check_kernel(recipe.spec));
  EXPECT_NE(recipe.spec.key(), once);
  recipe.spec.kind = LoopKind::row;
  expect_refused(recipe.spec, "output 0 has an element for each of the reduced dim; only column kernels have one");
}

TEST(KernelCheck, RefusesThePositionInOutputsAlongTheReducedDim) {
  Recipe recipe(LoopKind::column);
  recipe.output(recipe.pool.leaf(ScalarOp::linear_index, DType::i64), DType::i64);
  recipe.spec.outputs[0].along_reduced = true;
  expect_refused(recipe.finish("k"), "uses linear_index, which only counts columns; use LoopKind::row");
}

// Input 0 of a copying kernel, picked by input 1.
Recipe picking(DType index, LoopKind kind = LoopKind::pointwise) {
  Recipe recipe(kind);
  const Expr x = recipe.input(DType::f32);
  recipe.input(index);
  recipe.output(x, DType::f32);
  recipe.spec.inputs[0].index = 1;
  return recipe;
}

TEST(KernelCheck, NamesTheIndicesThatAreNotThere) {
  Recipe recipe = picking(DType::i64);
  recipe.spec.inputs[0].index = 2;
  expect_refused(recipe.finish("k"), "picked by input 2 of 2");
}

TEST(KernelCheck, RefusesIndicesOfOtherDTypes) {
  expect_refused(picking(DType::f32).finish("k"), "indices in input 1 are f32; expected i64 or i32");
  EXPECT_NO_THROW(check_kernel(picking(DType::i32).finish("k")));
}

TEST(KernelCheck, RefusesPickedIndices) {
  Recipe recipe = picking(DType::i64);
  recipe.spec.inputs[1].index = 1;
  expect_refused(recipe.finish("k"), "input 1 holds indices and is picked itself");
}

TEST(KernelCheck, RefusesPicksInColumnKernels) {
  expect_refused(picking(DType::i64, LoopKind::column).finish("k"), "picked; use LoopKind::row");
}

TEST(KernelCheck, TakesAnOutputThatOnlyItsIndexMoves) {
  Recipe recipe;
  recipe.output(recipe.input(DType::f32), DType::f32, StrideClass::broadcast);
  recipe.input(DType::i64);
  recipe.spec.outputs[0].index = 1;
  EXPECT_NO_THROW(check_kernel(recipe.finish("k")));
  recipe.spec.inputs[1].inner = StrideClass::broadcast;
  expect_refused(recipe.finish("k"), "stays in place along the row");
}

TEST(KernelCheck, PicksArePartOfTheKey) {
  Recipe picked = picking(DType::i64), plain = picking(DType::i64);
  plain.spec.inputs[0].index = -1;
  EXPECT_NE(picked.finish("k").key(), plain.finish("k").key());
}

TEST(KernelCheck, RefusesSumsOfBooleans) {
  Recipe recipe(LoopKind::row);
  recipe.output(recipe.reduce(ReduceOp::sum, recipe.input(DType::boolean)), DType::boolean, StrideClass::broadcast);
  expect_refused(recipe.finish("k"), "over booleans");
}

}  // namespace
}  // namespace tutti::codegen
