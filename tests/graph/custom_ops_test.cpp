// Ops of a program's own: effects that they declare are kept in compiled functions, others are found.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/graph/support/same.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/effect_check.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

// Its input becomes a tensor of twice the rows: each element and its negative.
const OpDef kUnfold{
    .name = "custom_unfold",
    .num_inputs = 1,
    .becomes = {0, -1, -1, -1},
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), {call[0].extent(0) * 2}); },
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Tensor x = to_contiguous(call[0]);
          for (int64_t i = 0; i < x.numel(); ++i) {
            outputs[0].data<float>()[2 * i] = x.data<float>()[i];
            outputs[0].data<float>()[2 * i + 1] = -x.data<float>()[i];
          }
        }};
// Its first input becomes a view of its second: same shape, other memory.
const OpDef kTake{
    .name = "custom_take",
    .num_inputs = 2,
    .becomes = {0, -1, -1, -1},
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[1].dtype(), call[1].sizes()); },
    .view = [](const OpCall& call) { return call[1].view_as(call[1].extents(), call[1].strides(), call[1].offset()); }};
// Writes its input and does not say so.
const OpDef kLiar{.name = "custom_liar",
                  .num_inputs = 1,
                  .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
                  .kernel =
                      [](const OpCall& call, std::span<const Tensor> outputs) {
                        copy_elements(outputs[0], call[0]);
                        call[0].data<float>()[0] += 1;
                      }};

TEST(CustomOps, AnArgumentWhoseMemoryIsExchanged) {
  const auto fn = [](const Tensor& x) {
    call_op(kUnfold, {}, x);
    return mul(x, 2.0);
  };
  const auto f = compile(fn);
  for (int call = 0; call < 3; ++call) {
    const Tensor x = values({5}, 1), y = values({5}, 1), view = slice(x, 0, 0, 2);
    expect_same(f(x), fn(y));
    expect_same(x, y);
    EXPECT_EQ(x.extents(), (Extents{10}));
    EXPECT_NE(x.storage().get(), view.storage().get());  // views keep the old memory
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(CustomOps, AnExchangeOfEqualShapeKeepsTheNewAlias) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    call_op(kTake, {}, x, y);
    add_(x, 1.0);  // writes y's memory
  };
  const auto f = compile(fn);
  const Tensor x = values({4}, 1), y = values({4}, 2), a = values({4}, 1), b = values({4}, 2);
  f(x, y), fn(a, b);
  expect_same(x, a);
  expect_same(y, b);
  EXPECT_EQ(x.storage().get(), y.storage().get());
  fill_(x, 3.0);
  EXPECT_EQ(select(y, 0, 0).item(), 3.0);
}

TEST(CustomOps, AHeldTensorWhoseMemoryIsExchangedAtEveryCall) {
  const Tensor held = values({3}, 1), eager = values({3}, 1);
  const auto body = [](const Tensor& state, const Tensor& x) {
    const Tensor next = add(state, x);
    call_op(kTake, {}, state, next);
    return mul(state, 2.0);
  };
  const auto f = compile([&](const Tensor& x) { return body(held, x); });
  for (uint64_t call = 1; call < 5; ++call) {
    const Tensor x = values({3}, call);
    expect_same(f(x), body(eager, x));
    expect_same(held, eager);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(CustomOps, UndeclaredWritesAreFoundWhenLookedFor) {
  if (!EffectCheck::is_on()) {
    // The variable is read once a process: the test runs itself again with it.
    const std::string again = "TUTTI_CHECK_EFFECTS=1 '" + testing::internal::GetArgvs()[0] +
                              "' --gtest_filter=CustomOps.Undeclared* > /dev/null";
    EXPECT_EQ(std::system(again.c_str()), 0);
    return;
  }
  const auto f = compile([](const Tensor& x) { return call_op(kLiar, {}, x); });
  for (const bool compiled : {false, true}) {
    try {
      compiled ? f(values({4}, 1)) : call_op(kLiar, {}, values({4}, 1));
      FAIL() << "not found";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("custom_liar: its kernel wrote the elements of input 0"), std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace tutti
