// Errors of compiled functions: what fails is what would fail op by op, after the writes before it and before those
// behind.
#include <gtest/gtest.h>

#include <functional>

#include "tests/graph/support/control_support.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/plan/failure.h"

namespace tutti {
namespace {

using namespace graph_test;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

// What a run leaves behind.
struct Outcome {
  std::string error;          // "" when it returned
  Tensors arguments;          // afterwards
  std::vector<bool> changed;  // whether their versions rose
};

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& t : tensors) copies.push_back(clone(t));
  return copies;
}

Outcome outcome_of(const Function& fn, const Tensors& given) {
  Outcome outcome{"", copies_of(given), {}};
  std::vector<uint32_t> before;
  for (const Tensor& t : outcome.arguments) before.push_back(t.version());
  try {
    fn(outcome.arguments);
  } catch (const UsageError& e) {
    outcome.error = e.what();
  }
  for (size_t i = 0; i < given.size(); ++i) outcome.changed.push_back(outcome.arguments[i].version() != before[i]);
  return outcome;
}

// The op that an error names first.
std::string op_in(const std::string& error) { return error.substr(0, error.find_first_of(" :")); }

// Runs both on copies of the arguments, with kernels as they come and one per op; gives the error of the compiled run.
std::string expect_same_failure(const Function& fn, const Tensors& given) {
  const Outcome eager = outcome_of(fn, given);
  EXPECT_NE(eager.error, "");
  std::string error;
  for (const bool fuse : {true, false}) {
    const auto compiled = compile([&](const Tensors& arguments) { return fn(arguments); },
                                  {.name = "failing", .fuse = fuse, .epilogues = graph::Epilogues::all});
    const Outcome got = outcome_of([&](const Tensors& arguments) { return compiled(arguments); }, given);
    EXPECT_EQ(op_in(got.error), op_in(eager.error)) << got.error << "\n" << eager.error;
    EXPECT_NE(got.error.find("failures_test.cpp:"), std::string::npos) << got.error;
    for (size_t i = 0; i < given.size(); ++i) {
      expect_same(got.arguments[i], eager.arguments[i]);
      EXPECT_EQ(got.changed[i], eager.changed[i]) << "argument " << i << (fuse ? "" : " without fusion") << "\n"
                                                  << compiled.explain();
    }
    error = got.error;
  }
  return error;
}

const Tensor kSeven = Tensor::of<int64_t>({7, 7, 7, 7}), kZero = Tensor::of<int64_t>({1, 0, 2, 3});

TEST(Failures, AWriteBehindADivisionByZeroIsNotMade) {
  const std::string error = expect_same_failure(
      [](const Tensors& a) {
        const Tensor q = floordiv(a[0], a[1]);
        fill_(a[2], 5.0);
        return Tensors{q};
      },
      {kSeven, kZero, values({4}, 1)});
  expect_part(error, "floordiv at failures_test.cpp:");
  expect_part(error, "ZeroDivisionError");
}

TEST(Failures, WritesBeforeItAreMadeAndThoseThatReadItAreNot) {
  expect_same_failure(
      [](const Tensors& a) {
        add_(a[0], 1);
        const Tensor q = floordiv(a[0], a[1]);
        add_(a[0], q);
        mul_(a[2], 2.0);
        return Tensors{q};
      },
      {kSeven, kZero, values({4}, 1)});
}

TEST(Failures, TheFirstOfSeveralIsTheOneThatIsReported) {
  const std::string error = expect_same_failure(
      [](const Tensors& a) {
        const Tensor q = floordiv(a[0], a[1]);
        fill_(a[3], 1.0);
        const Tensor r = remainder(add(q, a[2]), a[2]);
        fill_(a[3], 2.0);
        return Tensors{r};
      },
      {kSeven, Tensor::of<int64_t>({1, 1, 2, 3}), kZero, values({4}, 1)});
  expect_part(error, "remainder at");
  expect_same_failure([](const Tensors& a) { return Tensors{gather(a[0], 0, a[1]), floordiv(a[1], a[2])}; },
                      {values({4}, 1), Tensor::of<int64_t>({0, 9, 1, 2}), kZero});
}

TEST(Failures, WhatNobodyReadsFailsAllTheSame) {
  expect_same_failure(
      [](const Tensors& a) {
        floordiv(a[0], a[1]);
        fill_(a[2], 1.0);
        return Tensors{exp(a[2])};
      },
      {kSeven, kZero, values({4}, 1)});
  expect_same_failure(
      [](const Tensors& a) {
        const Tensor q = mul(add(floordiv(a[0], a[1]), 1), 0);  // read by what nobody reads
        return Tensors{exp(a[2])};
      },
      {kSeven, kZero, values({4}, 1)});
  expect_same_failure(
      [](const Tensors& a) {
        gather(a[2], 0, a[0]);
        fill_(a[2], 1.0);
        return Tensors{};
      },
      {kSeven, kZero, values({4}, 1)});
}

TEST(Failures, ADivisorThatIsANumberCannotFail) {
  const auto f = compile([](const Tensor& a) {
    floordiv(a, 3);
    return add(remainder(a, 3), 1);
  });
  f(kSeven);
  EXPECT_EQ(f.statistics().last.unused, 1);
}

TEST(Failures, LaunchesOfSeveralKernelsEndInFrontOfAWrite) {
  expect_same_failure(
      [](const Tensors& a) {
        const Tensor q = floordiv(a[0], a[1]), e = exp(a[2]);
        mul_(a[3], 2.0);
        return Tensors{q, e};
      },
      {kSeven, kZero, values({5}, 1), values({6}, 2)});
}

TEST(Failures, BesideMatrixProducts) {
  const Tensor a = values({16, 8}, 1), b = values({8, 16}, 2), zeros = full({16, 16}, 0, DType::i64),
               into = values({16, 16}, 3);
  expect_same_failure(
      [](const Tensors& t) {  // an epilogue that divides, then a write
        const Tensor q = floordiv(cast(matmul(t[0], t[1]), DType::i64), t[2]);
        add_(t[3], 1.0);
        return Tensors{q};
      },
      {a, b, zeros, into});
  expect_same_failure(
      [](const Tensors& t) {  // a prologue that divides, an epilogue that writes
        const Tensor q = cast(floordiv(cast(t[2], DType::i64), t[2]), DType::f32);
        add_(t[3], matmul(q, t[4]));
        return Tensors{};
      },
      {a, b, zeros, into, values({16, 16}, 4)});
}

TEST(Failures, ChecksAndBranches) {
  expect_same_failure(
      [](const Tensors& a) {
        add_(a[0], 1.0);
        check(gt(a[0], 2.5), "all must be large");
        fill_(a[0], 3.0);
        return Tensors{};
      },
      {values({4}, 1)});
  const auto branchy = [](const Tensors& a) {
    add_(a[2], 1.0);
    const auto divide = [](Span in) { return Tensors{floordiv(in[0], in[1])}; };
    cond(gt(sum(a[2]), -100.0), divide, [](Span in) { return Tensors{in[0]}; }, {a[0], a[1]});
    fill_(a[2], 3.0);
    return Tensors{};
  };
  expect_same_failure(branchy, {kSeven, kZero, values({4}, 1)});
  const auto choose = [](const Tensors& a) {
    const auto same = [](Span in) { return Tensors{mul(in[0], 2.0)}; };
    const Tensors made = switch_(a[0], {same, same}, {a[1]});
    fill_(a[1], 3.0);
    return made;
  };
  expect_part(expect_same_failure(choose, {Tensor::scalar(int64_t{7}), values({4}, 1)}), "the index is 7");
}

TEST(Failures, VerifiedCallsFailAlike) {
  const auto f = compile(
      [](const Tensor& x, const Tensor& a, const Tensor& b) {
        add_(x, 1.0);
        const Tensor q = floordiv(a, b);
        add_(x, 1.0);
        return q;
      },
      {.verify = 1});
  const Tensor x = full({4}, 0.0);
  EXPECT_THROW(f(x, kSeven, kZero), IntegerDivideByZero);
  expect_same(x, full({4}, 1.0));
}

TEST(Failures, AFailedCallLeavesNothingForTheNext) {
  const auto f = compile([](const Tensor& a, const Tensor& b) { return add(floordiv(a, b), 1); });
  for (int call = 0; call < 4; ++call) {
    EXPECT_THROW(f(kSeven, kZero), IntegerDivideByZero);
    expect_same(f(kSeven, kSeven), full({4}, 2, DType::i64));
  }
}

// An op of a program's own that throws in its kernel, which no facet says: it stays before the writes behind it.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
const OpDef kPicky{.name = "picky",
                   .num_inputs = 1,
                   .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
                   .kernel = [](const OpCall&, std::span<const Tensor>) { throw Refusal("not today"); }};
const OpDef kPickyUsage{
    .name = "picky_usage",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .kernel = [](const OpCall&, std::span<const Tensor>) { throw UsageError("picky_usage: not today"); }};

TEST(Failures, KernelsThatThrow) {
  const auto fn = [](const Tensors& a) {
    mul_(a[1], 2.0);
    const Tensor y = call_op(kPickyUsage, {}, a[0]);
    mul_(a[1], 3.0);
    return Tensors{y};
  };
  expect_part(expect_same_failure(fn, {values({4}, 1), values({4}, 2)}),
              "not today [picky_usage at failures_test.cpp:");
  const Tensor x = full({4}, 1.0);
  const auto f = compile([](const Tensor& t) {
    mul_(t, 2.0);
    const Tensor y = call_op(kPicky, {}, exp(t));
    mul_(t, 3.0);
    return y;
  });
  EXPECT_THROW(f(x), Refusal);  // a class of the program's own comes as it is
  expect_same(x, full({4}, 2.0));
}

// ---- every op of the table ------------------------------------------------------------------------------------------

struct Call {
  Tensors inputs;
  Attrs attrs;
};

bool declares_failure(const OpDef& op, const Sample& sample) {
  if (op.view != nullptr) return false;
  const OpCall call{op, sample.inputs, sample.attrs};
  OutputMetas metas;
  op.infer(call, metas);
  std::vector<graph::Value> outputs;
  for (int k = 0; k < metas.count; ++k)
    outputs.push_back({.dtype = metas.meta[k].dtype, .sizes = concrete(metas.meta[k].sizes)});
  return graph::fails_of(call, outputs) != graph::Fails::never;
}

// A call like the sample whose operands have the right sizes and the wrong values.
std::optional<Call> failing_call(const OpDef& op, const Sample& sample) {
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Tensor& x = sample.inputs[i];
    if (is_floating(x.dtype()) || x.numel() == 0) continue;
    for (const int64_t wrong : {int64_t{0}, int64_t{100}, int64_t{-7}}) {
      if (wrong < 0 && x.dtype() == DType::u8) continue;
      Call call{copies_of(sample.inputs), sample.attrs};
      call.inputs[i] = full(x.sizes(), wrong, x.dtype());
      Tensors outputs(static_cast<size_t>(op.num_outputs));
      const Tensors own = copies_of(call.inputs);
      try {
        run_eager({op, own, call.attrs}, outputs);
      } catch (const UsageError&) {
        return call;
      }
    }
  }
  return std::nullopt;
}

TEST(Failures, EveryOpThatDeclaresThatItCan) {
  int ops = 0;
  for (const OpDef* op : op_table()) {
    if (op->samples == nullptr || op->ordered) continue;
    bool declared = false, tried = false;
    for (const Sample& sample : op->samples()) {
      if (!declares_failure(*op, sample)) continue;
      declared = true;
      const std::optional<Call> call = failing_call(*op, sample);
      if (!call) continue;
      SCOPED_TRACE(fmt::format("{} {}", op->name, sample.name));
      tried = true;
      Tensors given = call->inputs;
      given.push_back(full({3}, 1.0));
      expect_same_failure(
          [&](const Tensors& a) {
            add_(a.back(), 1.0);
            Tensors outputs(static_cast<size_t>(op->num_outputs));
            apply(*op, std::span(a).first(a.size() - 1), call->attrs, outputs);
            add_(a.back(), 2.0);
            return Tensors{};
          },
          given);
      if (testing::Test::HasFailure()) return;
      break;
    }
    EXPECT_EQ(declared, tried)
        << op->name << ": no sample of it fails with other integers; give this test another way to make it fail";
    ops += tried;
  }
  EXPECT_GE(ops, 20);
}

}  // namespace
}  // namespace tutti
