// Compiled calls beside eager ones, and calls that do not wait for their kernels.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/resize_storage.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using namespace graph_test;

TEST(Verify, EveryNthCallIsComparedAndHasItsEffectsOnce) {
  Tensor count = Tensor::of<float>({0}), w = values({4, 3}, 2);
  requires_grad_(w);
  const auto step = [&](const Tensor& x) {
    add_(count, 1.0);
    mul_(slice(x, 0, 0, 1), 2.0);
    const Tensor loss = sum(matmul(x, w));
    backward(loss);
    return std::pair(detach(loss), slice(x, 0, 1, 3));
  };
  const auto f = compile(step, {.verify = 2});
  for (int i = 0; i < 5; ++i) {
    set_grad(w, {});
    const Tensor x = values({3, 4}, static_cast<uint64_t>(i)), y = values({3, 4}, static_cast<uint64_t>(i));
    const auto got = f(x);
    EXPECT_EQ(got.second.storage().get(), x.storage().get());
    const Tensor grad = grad_of(w);
    set_grad(w, {});
    const auto expected = step(y);
    expect_same(got.first, expected.first);
    expect_same(x, y);
    expect_same(grad, grad_of(w));
  }
  EXPECT_EQ(count.item(), 10.0);
  EXPECT_EQ(f.statistics().verified_calls, 3);
}

TEST(Verify, ANumberOfTheHostThatChangesIsFound) {
  double factor = 2.0;
  const auto f = compile([&](const Tensor& x) { return exp(mul(x, factor)); }, {.name = "scaled", .verify = 1});
  f(values({4}, 1));
  factor = 3.0;
  const std::string text = error_of<CaptureError>([&] { f(values({4}, 1)); });
  expect_part(text, "TUTTI-CAPTURE-032 'scaled'");
  expect_part(text, "result 0, made by exp, has ");
  expect_part(text, "as element 0 in row-major order, eagerly ");
  EXPECT_THROW(compile([](const Tensor& x) { return x; }, {.verify = -1}), UsageError);
}

TEST(Verify, AWriteThatTheTraceDidNotMakeIsFound) {
  bool writes = false;
  const auto f = compile(
      [&](const Tensor& x) {
        const Tensor y = add(x, 1.0);
        if (writes) add_(x, 1.0);
        return y;
      },
      {.verify = 1});
  f(values({4}, 1)), f(values({4}, 1));
  writes = true;
  expect_part(error_of<CaptureError>([&] { f(values({4}, 1)); }), "argument 0 has ");
}

template <class F>
void call_until_compiled(const F& f, const Tensor& x, const Tensor& expected) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int64_t eager = -1; eager != f.statistics().eager_calls && std::chrono::steady_clock::now() < deadline;) {
    eager = f.statistics().eager_calls;
    expect_same(f(x), expected);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Verify, OneTensorPassedTwiceIsOneTensorEagerly) {
  const auto f = compile(
      [](const Tensor& a, const Tensor& b) {
        add_(a, 1.0);
        return mul(a, b);
      },
      {.verify = 1});
  const Tensor x = values({4}, 1);
  f(x, x), f(x, x);
  EXPECT_EQ(f.statistics().verified_calls, 2);
}

TEST(Verify, MemoryThatIsGivenBackOutsideOfTheCall) {
  const Tensor whole = values({8, 8}, 1), shard = values({8, 8}, 2);
  const int64_t full = whole.storage()->nbytes();
  const auto held = compile(
      [&](const Tensor& x) {
        resize_storage_(whole, full);
        copy_(whole, shard);
        const Tensor y = matmul(x, whole);
        resize_storage_(whole, 0);
        return y;
      },
      {.verify = 1});
  const auto passed = compile(
      [&](const Tensor& p) {
        resize_storage_(p, full);
        copy_(p, shard);
        return add(p, 1.0);
      },
      {.verify = 1});
  for (int i = 0; i < 2; ++i) {
    resize_storage_(whole, 0);
    expect_same(held(values({8, 8}, 3)), matmul(values({8, 8}, 3), shard));
    EXPECT_FALSE(whole.storage()->has_memory());
    expect_same(passed(whole), add(shard, 1.0));
    expect_same(whole, shard);
  }
  EXPECT_EQ(held.statistics().verified_calls, 2);
  EXPECT_EQ(passed.statistics().verified_calls, 2);
}

TEST(FirstCall, SizesOnManyThreadsAreOneFamily) {
  const auto fn = [](const Tensor& x) { return exp(mul(x, x.size(0))); };
  const auto f = compile(fn, {.recompile_limit = 2, .first_call = CompileOptions::FirstCall::runs_eager});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 60; ++k) {
        const int64_t n = 2 + (k * 7 + i * 13) % 40;
        const Tensor x = values({n, 5}, 1), got = f(x), expected = fn(x);
        wrong += std::memcmp(got.raw_data(), expected.raw_data(), static_cast<size_t>(got.nbytes())) != 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
}

TEST(FirstCall, RunsEagerlyWhileKernelsAreCompiled) {
  int runs = 0;
  const auto fn = [&](const Tensor& x) {
    ++runs;
    return sum(exp(mul(x, 2.0)));
  };
  const auto f = compile(fn, {.first_call = CompileOptions::FirstCall::runs_eager});
  for (const int64_t n : {5, 6, 7}) {
    const Tensor x = values({n}, 1), expected = sum(exp(mul(x, 2.0)));
    call_until_compiled(f, x, expected);
  }
  EXPECT_EQ(f.statistics().compiles, 2);
  EXPECT_EQ(f.statistics().members, 1);
  const int64_t before = runs - f.statistics().looks;
  f(values({7}, 3));
  EXPECT_EQ(runs - f.statistics().looks, before);
  EXPECT_GE(f.statistics().eager_calls, 3);
}

TEST(FirstCall, AFunctionThatIsDroppedWaitsForItsKernels) {
  for (int i = 0; i < 20; ++i) {
    const auto f =
        compile([i](const Tensor& x) { return exp(add(x, i)); }, {.first_call = CompileOptions::FirstCall::runs_eager});
    expect_same(f(values({8}, 1)), exp(add(values({8}, 1), i)));
  }
}

}  // namespace
}  // namespace tutti
