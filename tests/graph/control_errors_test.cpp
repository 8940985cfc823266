// What control flow refuses, and what it says then.
#include "tutti/graph/control.h"

#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using namespace graph_test;

TEST(ControlErrors, BranchesThatDisagree) {
  const auto f = compile(
      [](const Tensor& p, const Tensor& x) {
        return cond(
            p, [](Span in) { return in[0]; }, [](Span in) { return cast(slice(in[0], 0, 0, 2), DType::bf16); }, {x})[0];
      },
      {.name = "uneven"});
  const std::string text = error_of<CaptureError>([&] { f(scalar(true), values({3}, 1)); });
  for (const char* part : {"TUTTI-CAPTURE-026", "cond in 'uneven'", "result 0 of the true branch of cond is [3] f32",
                           "of the false branch of cond [2] bf16"})
    expect_part(text, part);
  const auto g = compile([](const Tensor& p, const Tensor& x) {
    return cond(p, [](Span in) { return in[0]; }, [](Span) { return std::vector<Tensor>{}; }, {x});
  });
  const std::string count = error_of<CaptureError>([&] { g(scalar(true), values({3}, 1)); });
  expect_part(count, "gives 1 tensors, the false branch of cond 0");
}

TEST(ControlErrors, WritesToWhatExistsOutside) {
  const Tensor held = values({3}, 2);
  for (const bool operand : {true, false}) {
    const auto f = compile(
        [&](const Tensor& p, const Tensor& x) {
          return cond(
              p, [&](Span in) { return add_(operand ? slice(in[0], 0, 0, 3) : held, 1.0); },
              [](Span in) { return in[0]; }, {x})[0];
        },
        {.name = "writer"});
    const uint32_t version = held.version();
    const std::string text = error_of<CaptureError>([&] { f(scalar(true), values({3}, 1)); });
    for (const char* part :
         {"TUTTI-CAPTURE-025", "writer: true branch of cond", "writes in place to [3] f32", "clone()"})
      expect_part(text, part);
    EXPECT_EQ(held.version(), version);
  }
}

TEST(ControlErrors, TensorsThatLeaveTheirBranch) {
  const auto f = compile(
      [](const Tensor& p, const Tensor& x) {
        Tensor leaked;
        const Tensor y = cond(p, [&](Span in) { return leaked = exp(in[0]); }, [](Span in) { return in[0]; }, {x})[0];
        return add(y, leaked);
      },
      {.name = "leaky"});
  const std::string text = error_of<CaptureError>([&] { f(scalar(true), values({3}, 1)); });
  for (const char* part : {"TUTTI-CAPTURE-", "leaky: true branch of cond"}) expect_part(text, part);
}

TEST(ControlErrors, BackwardInsideABranch) {
  const Tensor w = values({3}, 2);
  requires_grad_(w);
  const auto f = compile([&](const Tensor& p, const Tensor& x) {
    return cond(
        p,
        [&](Span in) {
          backward(sum(mul(in[0], w)));
          return in[0];
        },
        [](Span in) { return in[0]; }, {x})[0];
  });
  expect_part(error_of<CaptureError>([&] { f(scalar(true), values({3}, 1)); }), "TUTTI-CAPTURE-027");
  EXPECT_FALSE(grad_of(w).defined());
}

TEST(ControlErrors, OperandsThatChangeBeforeBackward) {
  const auto f = compile([](const Tensor& p, const Tensor& x, const Tensor& y) {
    requires_grad_(x);
    const Tensor z = cond(p, [&](Span in) { return add(in[0], y); }, [](Span in) { return in[0]; }, {x})[0];
    add_(y, 1.0);
    backward(sum(mul(z, z)));
  });
  const std::string text = error_of<UsageError>([&] { f(scalar(true), values({3}, 1), values({3}, 2)); });
  expect_part(text, "was changed in place after the forward");
}

TEST(ControlErrors, CotangentsThatDifferInDType) {
  const auto f = compile([](const Tensor& p, const Tensor& x, const Tensor& w) {
    return cond(
        p, [&](Span in) { return matmul(in[0], w); }, [&](Span in) { return matmul(in[0], mul(w, w)); }, {x})[0];
  });
  const Tensor x = cast(values({4, 5}, 1), DType::bf16), w = cast(values({5, 6}, 2), DType::bf16);
  requires_grad_(w);
  const std::string text = error_of<UsageError>([&] { f(scalar(true), x, w); });
  expect_part(text, "cotangents of different kinds, [5, 6] f32 cpu and [5, 6] bf16 cpu");
}

TEST(ControlErrors, PredicatesAndIndicesOfTheWrongKind) {
  const Tensor x = values({3}, 1);
  const auto id = [](Span in) { return in[0]; };
  expect_part(error_of<UsageError>([&] { cond(gt(x, 0.0), id, id, {x}); }), "expected a boolean without dims");
  expect_part(error_of<UsageError>([&] { cond(sum(x), id, id, {x}); }), "expected a boolean without dims");
  expect_part(error_of<UsageError>([&] { switch_(sum(x), {id}, {x}); }), "expected an integer without dims");
  expect_part(error_of<UsageError>([&] { switch_(Tensor::scalar(int64_t{0}), {}, {x}); }), "there are no branches");
  expect_part(error_of<UsageError>([&] { cond(scalar(true), id, id, {Tensor{}}); }), "operand 0 is undefined");
  expect_part(error_of<UsageError>([&] { check(x, "text"); }), "expected a boolean tensor");
}

}  // namespace
}  // namespace tutti
