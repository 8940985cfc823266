// Compiled functions and many threads: who compiles, who waits, and what is left after a failure.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <thread>

#include "tests/graph/support/same.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::same_bits;
using graph_test::values;

// Runs body(thread) on `count` threads that start together.
template <class Body>
void on_threads(int count, Body body) {
  std::barrier start(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(CompileThreads, OneThreadCompilesForAll) {
  std::atomic<int> traces{0};
  const auto f = compile([&](const Tensor& x) {
    ++traces;
    return softmax(mul(x, 3.0), -1);
  });
  std::vector<Tensor> results(8);
  on_threads(8, [&](int i) {
    for (int call = 0; call < 20; ++call)
      results[static_cast<size_t>(i)] = f(values({17, 33}, static_cast<uint64_t>(i)));
  });
  EXPECT_EQ(traces, 1 + f.statistics().looks);
  EXPECT_LE(f.statistics().looks, 7);  // at calls 2, 4, ..., 128
  EXPECT_EQ(f.statistics().compiles, 1);
  for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], softmax(mul(values({17, 33}, i), 3.0), -1));
}

TEST(CompileThreads, DifferentFunctionsAndShapesAtOnce) {
  const auto f = compile([](const Tensor& x) { return exp(add(x, 1.0)); }, {.recompile_limit = 64});
  const auto g = compile([](const Tensor& x) { return tanh(mul(x, 2.0)); }, {.recompile_limit = 64});
  std::atomic<int> wrong{0};
  on_threads(8, [&](int i) {
    for (int64_t n = 1; n < 8; ++n) {
      const Tensor x = values({n, i % 3 + 1}, static_cast<uint64_t>(n));
      const Tensor got = i % 2 ? f(x) : g(x), expected = i % 2 ? exp(add(x, 1.0)) : tanh(mul(x, 2.0));
      wrong += std::memcmp(got.raw_data(), expected.raw_data(), static_cast<size_t>(got.nbytes())) != 0;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(CompileThreads, AnExceptionInOneCompileLeavesNothingBehindAndWakesTheWaiters) {
  std::atomic<int> tries{0};
  const auto f = compile([&](const Tensor& x) {
    if (++tries <= 3) throw std::runtime_error("not yet");
    return exp(x);
  });
  std::atomic<int> failed{0}, worked{0};
  on_threads(8, [&](int) {
    try {
      f(values({4}, 1));
      ++worked;
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "not yet");
      ++failed;
    }
  });
  EXPECT_EQ(failed, 3);
  EXPECT_EQ(worked, 5);
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(CompileThreads, ErrorsOfACallStayWithTheCall) {
  const auto f = compile([](const Tensor& a, const Tensor& b) { return floordiv(a, b); });
  const Tensor a = Tensor::of<int64_t>({6, 7}), good = Tensor::of<int64_t>({2, 3}), bad = Tensor::of<int64_t>({2, 0});
  std::atomic<int> thrown{0};
  on_threads(8, [&](int i) {
    for (int call = 0; call < 50; ++call) {
      try {
        const Tensor q = f(a, i % 2 ? bad : good);
        EXPECT_EQ(q.data<int64_t>()[0], 3);
      } catch (const IntegerDivideByZero&) {
        ++thrown;
      }
    }
  });
  EXPECT_EQ(thrown, 4 * 50);
}

// Which arguments share memory decides between programs, and the tables that find it are those of a thread.
TEST(CompileThreads, RanksCallOneFunctionWithHundredsOfArgumentsAtOnce) {
  constexpr size_t kArguments = 300;
  const auto fn = [](const std::vector<Tensor>& all) {
    for (size_t i = 0; i < all.size(); ++i) add_(all[i], static_cast<double>(i % 5));
    Tensor sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = add(sum, all[i]);
    return sum;
  };
  // kind: 0, all have memory of their own; 1, two are one tensor; 2, two are views that overlap.
  const auto arguments = [](int kind, uint64_t seed) {
    std::vector<Tensor> all;
    for (size_t i = 0; i < kArguments; ++i) all.push_back(values({5}, seed + i));
    const Tensor base = values({7}, seed);
    if (kind > 0) all[10] = slice(base, 0, 0, 5);
    if (kind > 0) all[kArguments - 20] = kind == 1 ? all[10] : slice(base, 0, 2, 7);
    return all;
  };
  const auto f = compile(fn);
  const auto call_often = [&](int rank) {
    for (int call = 0; call < 12; ++call) {
      const int kind = (call + rank) % 3;
      const auto seed = static_cast<uint64_t>(100 * rank + call);
      const std::vector<Tensor> given = arguments(kind, seed), like = arguments(kind, seed);
      expect_same(f(given), fn(like));
      for (size_t i = 0; i < kArguments; ++i) ASSERT_TRUE(same_bits(given[i], like[i])) << "argument " << i;
    }
  };
  on_threads(2, [&](int rank) {
    RankContext context({.threads = 1 + rank});
    const RankContext::Scope scope(context);
    call_often(rank);
    EXPECT_EQ(f.statistics().compiles, 3);
  });
  on_threads(2, call_often);  // of one rank
  EXPECT_EQ(f.statistics().compiles, 3);
}

TEST(CompileThreads, FunctionsMayDieWhereOthersAreMade) {
  on_threads(4, [&](int i) {
    for (int k = 0; k < 20; ++k) {
      const double factor = i * 20 + k;
      const auto f = compile([factor](const Tensor& x) { return mul(x, factor); });
      EXPECT_EQ(f(Tensor::scalar(1.0f)).item(), factor);
    }
  });
}

}  // namespace
}  // namespace tutti
