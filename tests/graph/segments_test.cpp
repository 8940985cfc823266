// Functions that read elements of their tensors: they run in segments.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/nonzero.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using namespace graph_test;

const CompileOptions kSegments{.name = "reader", .on_break = CompileOptions::OnBreak::segment};

bool is_true(const Tensor& condition) { return condition.item_int() != 0; }

TEST(Segments, ABranchOnAValueIsCompiledOncePerSide) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = exp(x);
    return is_true(gt(sum(y), 20.0)) ? mul(y, 2.0) : sub(y, x);
  };
  const auto f = compile(fn, kSegments);
  for (uint64_t seed = 0; seed < 12; ++seed) expect_same(f(values({12}, seed)), fn(values({12}, seed)));
  EXPECT_EQ(f.statistics().compiles, 1);
  EXPECT_EQ(f.statistics().continuations, 2);
  expect_part(f.explain(), "then it reads");
  expect_part(f.explain(), "segments_test.cpp");
}

TEST(Segments, LoopsThatEndWithAValue) {
  const auto fn = [](Tensor x) {
    int64_t halvings = 0;
    while (is_true(gt(amax(abs(x)), 0.3))) x = mul(x, 0.5), ++halvings;
    return std::pair(x, halvings);
  };
  const auto f = compile(fn, kSegments);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Tensor x = mul(values({5, 3}, seed), static_cast<double>(seed));
    const auto got = f(x), expected = fn(x);
    expect_same(got.first, expected.first);
    EXPECT_EQ(got.second, expected.second);
  }
}

TEST(Segments, GradientsFlowThroughAllOfThem) {
  const auto fn = [](const Tensor& x, const Tensor& w) {
    const Tensor h = tanh(matmul(x, w));
    const Tensor y = is_true(gt(sum(h), 0.0)) ? mul(h, h) : exp(h);
    return is_true(gt(amax(y), 0.9)) ? mul(y, x) : add(y, h);
  };
  const auto f = compile(fn, kSegments);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto run = [&](auto&& call) {
      const Tensor x = values({4, 4}, seed), w = values({4, 4}, seed + 50);
      requires_grad_(x), requires_grad_(w);
      const Tensor y = call(x, w);
      backward(sum(y));
      return std::vector{y, grad_of(x), grad_of(w)};
    };
    const auto got = run(f), expected = run(fn);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
}

TEST(Segments, ATrainingStepThatSkipsLargeGradients) {
  const auto make = [] {
    const Tensor w = values({6, 2}, 3);
    requires_grad_(w);
    return w;
  };
  const Tensor w = make(), w_eager = make();
  const auto step = [](const Tensor& w, const Tensor& x) {
    const Tensor loss = sum(exp(matmul(x, w)));
    backward(loss);
    const Tensor grad = grad_of(w);
    const bool small = is_true(lt(amax(abs(grad)), 8.0));
    {
      const NoGradScope no_grad;
      if (small) add_(w, mul(grad, -0.01));
    }
    set_grad(w, {});
    return std::pair(detach(loss), small);
  };
  const auto f = compile([&](const Tensor& x) { return step(w, x); }, kSegments);
  int skipped = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Tensor x = values({3, 6}, seed);
    const auto got = f(x), expected = step(w_eager, x);
    expect_same(got.first, expected.first);
    EXPECT_EQ(got.second, expected.second);
    expect_same(w, w_eager);
    EXPECT_EQ(grad_of(w).defined(), grad_of(w_eager).defined());
    skipped += !got.second;
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 12);
}

TEST(Segments, WritesBeforeAReadAreThereAfterIt) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = clone(x), head = slice(y, 0, 0, 3);
    mul_(x, 2.0);
    add_(head, 1.0);
    const int64_t n = sum(cast(gt(x, 0.0), DType::i64)).item_int();
    mul_(head, static_cast<double>(n));
    add_(x, y);
    return std::tuple(head, y, reshape(x, {-1}));
  };
  const auto f = compile(fn, kSegments);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Tensor a = values({5, 2}, seed), b = clone(a);
    const auto [head, y, flat] = f(a);
    const auto [head_e, y_e, flat_e] = fn(b);
    expect_same(head, head_e);
    expect_same(y, y_e);
    expect_same(flat, flat_e);
    expect_same(a, b);
    EXPECT_EQ(head.storage().get(), y.storage().get());
    EXPECT_EQ(flat.storage().get(), a.storage().get());
  }
}

TEST(Segments, SizesThatDataGive) {
  const auto fn = [](const Tensor& x) {
    const Tensor large = masked_select(x, gt(x, 0.0));
    return std::pair(sum(mul(large, large)), large);
  };
  const auto f = compile(fn, kSegments);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto run = [&](auto&& call) {
      const Tensor x = values({23}, seed);
      requires_grad_(x);
      const auto [total, large] = call(x);
      backward(total);
      return std::vector{detach(total), detach(large), grad_of(x)};
    };
    const auto got = run(f), expected = run(fn);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Segments, WhatAHeldTensorSaysIsReadAtEveryCall) {
  const Tensor mode = Tensor::scalar(int64_t{0});
  const auto fn = [&](const Tensor& x) { return mode.item_int() == 0 ? exp(x) : neg(x); };
  const auto f = compile(fn, kSegments);
  for (const int64_t now : {0, 1, 0, 2}) {
    *mode.data<int64_t>() = now;
    expect_same(f(values({4}, 1)), fn(values({4}, 1)));
  }
}

TEST(Segments, WholeSmallTensorsCanBeRead) {
  const auto fn = [](const Tensor& counts, const Tensor& x) {
    const Tensor host = to_contiguous(counts);
    std::vector<Tensor> sums;
    int64_t at = 0;
    for (int64_t e = 0; e < host.numel(); ++e) {
      const int64_t n = host.data<int64_t>()[e];
      sums.push_back(sum(slice(x, 0, at, at + n)));
      at += n;
    }
    return sums;
  };
  const auto f = compile(fn, kSegments);
  for (const auto& counts :
       {Tensor::of<int64_t>({2, 3, 1}), Tensor::of<int64_t>({0, 6, 0}), Tensor::of<int64_t>({2, 3, 1})}) {
    const auto got = f(counts, values({6, 3}, 1)), expected = fn(counts, values({6, 3}, 1));
    for (size_t i = 0; i < expected.size(); ++i) expect_same(got[i], expected[i]);
  }
  EXPECT_EQ(f.statistics().continuations, 2);
}

TEST(Segments, ThreadsCallAtOnce) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = exp(x);
    const int64_t n = sum(cast(gt(y, 1.0), DType::i64)).item_int();
    return mul(y, static_cast<double>(n));
  };
  const auto f = compile(fn, kSegments);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 20; ++i) {
        const Tensor x = values({9}, t * 7 + i), got = f(x), expected = fn(x);
        wrong += std::memcmp(got.raw_data(), expected.raw_data(), static_cast<size_t>(got.nbytes())) != 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Segments, FloatsThatNeverComeTwiceReachTheLimit) {
  const auto fn = [](const Tensor& x) { return mul(x, sum(x).item()); };
  CompileOptions options = kSegments;
  options.recompile_limit = 3;
  const auto f = compile(fn, options);
  for (uint64_t seed = 0; seed < 3; ++seed) expect_same(f(values({4}, seed)), fn(values({4}, seed)));
  const std::string text = error_of<RecompileLimit>([&] { f(values({4}, 9)); });
  expect_part(text, "TUTTI-CAPTURE-030 'reader' was compiled for 3 values of read 0");
  expect_same(f(values({4}, 1)), fn(values({4}, 1)));
  options.on_limit = CompileOptions::OnLimit::forget;
  const auto g = compile(fn, options);
  for (uint64_t seed = 0; seed < 8; ++seed) expect_same(g(values({4}, seed)), fn(values({4}, seed)));
}

TEST(Segments, ReadsThatCannotBeAnswered) {
  const Tensor x = values({2000}, 1);
  const auto large = compile([](const Tensor& t) { return add(t, to_contiguous(exp(t)).data<float>()[0]); }, kSegments);
  expect_part(error_of<CaptureError>([&] { large(x); }), "'reader' reads 8000 bytes");
  const auto swallowed = compile(
      [](const Tensor& t) {
        try {
          return add(t, sum(t).item());
        } catch (...) {
          return t;
        }
      },
      kSegments);
  expect_part(error_of<CaptureError>([&] { swallowed(x); }), "catches what stops its trace");
  const Tensor held = Tensor::scalar(2.0);
  const auto constant = compile([&](const Tensor& t) { return add(t, held.item()); }, {.name = "holder"});
  const std::string text = error_of<CaptureError>([&] { constant(x); });
  expect_part(text, "TUTTI-CAPTURE-012 'holder' reads the elements of a tensor");
  expect_part(text, "segments_test.cpp");
}

TEST(Segments, AFunctionThatDoesSomethingElseWhenItRunsAgain) {
  int runs = 0;
  const auto f = compile(
      [&](const Tensor& x) {
        const Tensor y = runs++ == 0 ? exp(x) : neg(x);
        return is_true(gt(sum(y), 0.0)) ? y : x;
      },
      kSegments);
  expect_part(error_of<CaptureError>([&] { f(values({3}, 1)); }),
              "TUTTI-CAPTURE-033 'reader' does not do the same up to read 0");
}

TEST(Segments, ReadingInABranchIsAnError) {
  const auto f = compile(
      [](const Tensor& x) {
        return cond(
            gt(sum(x), 0.0), [](auto in) { return mul(in[0], sum(in[0]).item()); }, [](auto in) { return neg(in[0]); },
            {x})[0];
      },
      kSegments);
  expect_part(error_of<CaptureError>([&] { f(values({3}, 1)); }), "TUTTI-CAPTURE-012");
}

TEST(Segments, OneSizeAfterTheOther) {
  const auto fn = [](const Tensor& x) { return is_true(gt(sum(x), 0.0)) ? exp(x) : neg(x); };
  const auto f = compile(fn, kSegments);
  for (int64_t n = 2; n < 9; ++n) expect_same(f(values({n}, 3)), fn(values({n}, 3)));
  expect_part(f.explain(), "the function reads elements");
}

// The continuation of the first call was traced without a gradient to add to, that of the second with one.
TEST(Segments, HeldLeavesGatherGradientsFromCallToCall) {
  const auto step = [](const Tensor& w, const Tensor& x) {
    backward(sum(exp(mul(x, w))));
    const bool large = is_true(gt(sum(grad_of(w)), 2.0));
    backward(sum(mul(large ? mul(w, 2.0) : exp(w), x)));
    return is_true(gt(amax(grad_of(w)), 5.0)) ? mul(grad_of(w), 2.0) : detach(w);
  };
  const Tensor w = values({4}, 3), w_eager = values({4}, 3);
  requires_grad_(w), requires_grad_(w_eager);
  const auto f = compile([&](const Tensor& x) { return step(w, x); }, kSegments);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Tensor x = values({4}, seed);
    expect_same(f(x), step(w_eager, x));
    expect_same(grad_of(w), grad_of(w_eager));
    if (seed % 3 == 2) set_grad(w, {}), set_grad(w_eager, {});
  }
}

TEST(Segments, WhatIsReadIsForTheHost) {
  const auto used = compile([](const Tensor& x) { return mul(to_contiguous(exp(x)), x); }, kSegments);
  expect_part(error_of<CaptureError>([&] { used(values({3}, 1)); }),
              "uses what it read of a tensor, [3] f32 cpu, in an op or as a result");
  const auto returned = compile([](const Tensor& x) { return to_contiguous(x); }, kSegments);
  expect_part(error_of<CaptureError>([&] { returned(values({3}, 1)); }), "uses what it read of a tensor");
  // The host may write to it, which changes no later answer.
  const auto fn = [](const Tensor& x) {
    const Tensor host = to_contiguous(transpose(x, 0, 1));
    return mul(x, host.data<float>()[0] += 1.0F);
  };
  const auto f = compile(fn, kSegments);
  for (int i = 0; i < 3; ++i) expect_same(f(values({3, 2}, 1)), fn(values({3, 2}, 1)));
  EXPECT_EQ(f.statistics().continuations, 1);
}

TEST(Segments, ReadingInARegionThatTheBackwardComputesAgain) {
  const auto fn = [](const Tensor& x) {
    return checkpoint([](Span in) { return is_true(gt(sum(in[0]), 0.0)) ? exp(in[0]) : neg(in[0]); }, std::span(&x, 1));
  };
  const Tensor x = values({3}, 1);
  {
    const NoGradScope no_grad;
    expect_same(compile(fn, kSegments)(x), fn(x));
  }
  requires_grad_(x);
  expect_part(error_of<CaptureError>([&] { compile(fn, kSegments)(x); }),
              "'reader' reads elements in what its backward computes again");
}

TEST(Segments, WhatIsCarriedHasTheSizeThatItHad) {
  int64_t size = 4;
  const auto f = compile(
      [&](const Tensor& x) {
        const Tensor y = full({size}, 1.0), z = full({size = 90000}, 2.0);
        return is_true(gt(sum(x), -100.0)) ? mul(y, z) : y;
      },
      kSegments);
  expect_part(error_of<CaptureError>([&] { f(values({3}, 1)); }), "TUTTI-CAPTURE-033");
}

}  // namespace
}  // namespace tutti
