// What control flow refuses, and what it says then; parts that are not chosen, and fail where every part runs.
#include "tutti/graph/control.h"

#include <gtest/gtest.h>

#include <new>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/plan/control_step.h"

namespace tutti {
namespace {

using namespace graph_test;
using Many = std::vector<Tensor>;

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

// ---- parts that the data do not choose, within an EveryPartScope ---------------------------------------------------

class OfTheProgram : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws an error of another kind for each value of its element.
const OpDef kFails{.name = "fails",
                   .num_inputs = 1,
                   .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
                   .kernel =
                       [](const OpCall& call, std::span<const Tensor>) {
                         switch (static_cast<int>(call[0].data<float>()[0])) {
                           case 1:
                             throw UsageError("bad use");
                           case 2:
                             throw IntegerDivideByZero("here");
                           case 3:
                             throw EnvironmentError("bad machine");
                           case 4:
                             throw InternalError("bad code");
                           case 5:
                             throw std::bad_alloc();
                           default:
                             throw OfTheProgram("not today");
                         }
                       }};

// Adds one until the sum is at the limit: as many rounds as it says.
Tensor count_to(const Tensor& limit) {
  return while_loop([&](Span c) { return lt(c[0], limit); }, [](Span c) { return Many{add(c[0], 1.0)}; },
                    {Tensor::scalar(0.0f)})[0];
}

TEST(EveryPart, PartsThatFailLeaveLaterLoopsAlone) {
  const auto f = compile([](const Tensor& x) {
    return cond(
        lt(sum(x), 0.0), [](Span in) { return Many{apply1(kFails, in)}; }, [](Span in) { return Many{neg(in[0])}; },
        {x})[0];
  });
  const auto loop = compile(count_to);
  const Tensor limit = Tensor::scalar(50.0f);
  const auto expect_whole_loops = [&] { EXPECT_EQ(loop(limit).item(), 50); };
  const auto failure_of = [&]<class Kind>(float value, Kind*) {
    const graph::EveryPartScope every_part;
    const std::string text = error_of<Kind>([&] { f(full({1}, value)); });
    expect_whole_loops();
    return text;
  };
  const auto named = [&](const std::string& text, const char* part) {
    expect_part(text, "the true branch of cond, which is not chosen here, cannot run on these tensors: ");
    expect_part(text, part);
    expect_whole_loops();
  };
  named(failure_of(1, static_cast<UsageError*>(nullptr)), "bad use");
  named(failure_of(2, static_cast<UsageError*>(nullptr)), "ZeroDivisionError");
  named(failure_of(3, static_cast<EnvironmentError*>(nullptr)), "bad machine");
  named(failure_of(4, static_cast<InternalError*>(nullptr)), "bad code");
  failure_of(5, static_cast<std::bad_alloc*>(nullptr));
  expect_whole_loops();
  EXPECT_EQ(failure_of(6, static_cast<OfTheProgram*>(nullptr)), "not today");
  expect_whole_loops();
  expect_same(f(full({1}, 3.0)), full({1}, -3.0));  // without the scope the part does not run
}

// Only loops within a part that is not chosen end early.
TEST(EveryPart, LoopsBesideThePartRunAllRounds) {
  const auto fn = [](const Tensor& x) {
    const Tensor endless = cond(
        lt(sum(x), 0.0),
        [](Span in) {
          return while_loop([](Span c) { return lt(sum(c[0]), 1e30); }, [](Span c) { return Many{sub(c[0], 1.0)}; },
                            {in[0]});
        },
        [](Span in) { return Many{mul(in[0], 2.0)}; }, {x})[0];
    return add(endless, count_to(Tensor::scalar(20.0f)));
  };
  const auto f = compile(fn);
  const graph::EveryPartScope outer;
  expect_same(f(full({2}, 3.0)), full({2}, 26.0));
  {
    const graph::EveryPartScope inner;
    expect_same(f(full({2}, 4.0)), full({2}, 28.0));
  }
  expect_same(f(full({2}, 5.0)), full({2}, 30.0));
}

}  // namespace
}  // namespace tutti
