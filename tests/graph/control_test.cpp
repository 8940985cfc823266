// cond, switch_ and check: what they give and refuse is what an eager run gives and refuses, bit for bit.
#include "tutti/graph/control.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/graph/support/control_support.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using namespace graph_test;

Tensor grown(Span in) { return exp(in[0]); }
Tensor flipped(Span in) { return neg(add(in[0], 1.0)); }

// exp(x) where the elements of x add up to more than 0, else -(x + 1).
Tensor either(const Tensor& x) { return cond(gt(sum(x), 0.0), grown, flipped, {x})[0]; }

TEST(Cond, ThePredicateIsReadAtEveryCall) {
  const auto f = compile(either);
  for (uint64_t seed = 1; seed < 7; ++seed) {
    const Tensor x = values({5, 3}, seed);
    expect_same(f(x), either(x));
    expect_same(f(neg(x)), either(neg(x)));
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Cond, HeldTensorsAreReadAtEveryCall) {
  Tensor w = values({4}, 1);
  const auto fn = [&](const Tensor& p, const Tensor& x) {
    const Tensor y = exp(x);
    return cond(p, [&](Span in) { return mul(in[0], w); }, [&](Span) { return add(y, w); }, {x})[0];
  };
  const auto f = compile(fn);
  const Tensor x = values({3, 4}, 2);
  for (int round = 0; round < 2; ++round) {
    for (const bool p : {true, false}) expect_same(f(scalar(p), x), fn(scalar(p), x));
    fill_(w, 3.0);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Cond, BranchesThatGiveWhatTheyWereGiven) {
  const Tensor w = values({2, 3}, 5);
  const auto fn = [&](const Tensor& p, const Tensor& x) {
    return cond(
        p, [](Span in) { return std::vector<Tensor>{in[0], transpose(in[0], 0, 1), in[0]}; },
        [&](Span in) { return std::vector<Tensor>{w, reshape(in[0], {3, 2}), exp(w)}; }, {x});
  };
  const auto f = compile(fn);
  const Tensor x = values({2, 3}, 1);
  for (const bool p : {true, false}) {
    const auto got = f(scalar(p), x), expected = fn(scalar(p), x);
    for (size_t i = 0; i < 3; ++i) {
      expect_same(got[i], expected[i]);
      EXPECT_NE(expected[i].storage().get(), x.storage().get());
      EXPECT_NE(expected[i].storage().get(), w.storage().get());
      EXPECT_NE(got[i].storage().get(), x.storage().get());
    }
  }
}

TEST(Cond, OperandsThatAreViews) {
  const auto fn = [](const Tensor& p, const Tensor& x) {
    const Tensor t = transpose(x, 0, 1), part = slice(x, 1, 1, 3), row = expand(select(x, 0, 2), {4, 6});
    return cond(
        p, [](Span in) { return add(sum(in[0]), sum(mul(in[1], in[1]))); },
        [&](Span in) { return sum(mul(in[2], part)); }, {t, part, slice(row, 1, 0, 2)})[0];
  };
  const auto f = compile(fn);
  const Tensor base = values({3, 4, 6}, 1);
  for (int64_t i = 0; i < 3; ++i) {
    for (const bool p : {true, false}) expect_same(f(scalar(p), select(base, 0, i)), fn(scalar(p), select(base, 0, i)));
  }
}

TEST(Cond, InPlaceWritesOutsideHappenInOrder) {
  const auto fn = [](const Tensor& p, const Tensor& x) {
    const auto twice = [&] {
      return cond(p, [](Span in) { return mul(in[0], 2.0); }, [&](Span) { return add(x, 1.0); }, {x})[0];
    };
    const Tensor before = twice();
    add_(x, before);
    const Tensor after = twice();
    add_(x, 1.0);
    return std::pair(before, after);
  };
  const auto f = compile(fn);
  for (const bool p : {true, false}) {
    Tensor x = values({4}, 1), x2 = values({4}, 1);
    const auto got = f(scalar(p), x), expected = fn(scalar(p), x2);
    expect_same(got.first, expected.first);
    expect_same(got.second, expected.second);
    expect_same(x, x2);
  }
}

TEST(Cond, BranchesNest) {
  const auto fn = [](const Tensor& a, const Tensor& b, const Tensor& x) {
    const Tensor h = tanh(x);
    return cond(
        a,
        [&](Span in) {
          return cond(b, [&](Span deep) { return mul(deep[0], h); }, [&](Span) { return sub(in[0], h); }, {exp(in[0])});
        },
        [&](Span in) {
          const Tensor inner = add(in[0], x);
          return cond(b, [&](Span) { return neg(inner); }, [](Span deep) { return deep[0]; }, {inner});
        },
        {sigmoid(x)})[0];
  };
  const auto f = compile(fn);
  const Tensor x = values({7}, 3);
  for (int i = 0; i < 4; ++i) expect_same(f(scalar(i & 1), scalar(i & 2), x), fn(scalar(i & 1), scalar(i & 2), x));
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Cond, EqualBranchesAreNotMistakenForEachOther) {
  const auto fn = [](const Tensor& p, const Tensor& x) {
    const auto up = [](Span in) { return add(in[0], 1.0); };
    const auto down = [](Span in) { return sub(in[0], 1.0); };
    return std::pair(cond(p, up, down, {x})[0], cond(p, down, up, {x})[0]);
  };
  const Tensor x = values({5}, 1);
  const auto [a, b] = compile(fn)(scalar(true), x);
  expect_same(a, add(x, 1.0));
  expect_same(b, sub(x, 1.0));
}

TEST(Cond, HeldPredicatesEmptyOperandsAndOverlappingMemory) {
  Tensor flag = scalar(true);
  const Tensor base = values({10}, 3), held = slice(base, 0, 4, 6);
  const auto fn = [&](const Tensor& x, const Tensor& none) {
    return cond(
        flag, [&](Span in) { return std::vector<Tensor>{mul(slice(in[0], 0, 1, 3), held), exp(in[1])}; },
        [&](Span in) { return std::vector<Tensor>{neg(held), neg(in[1])}; }, {x, none});
  };
  const auto f = compile(fn);
  const Tensor x = slice(base, 0, 2, 7), none = values({0, 4}, 1);
  for (const bool on : {true, false, true}) {
    fill_(flag, on);
    const auto got = f(x, none), expected = fn(x, none);
    for (size_t i = 0; i < 2; ++i) expect_same(got[i], expected[i]);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Cond, ThreadsCallItAtOnce) {
  const auto f = compile(either);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&f, t] {
      for (uint64_t i = 0; i < 50; ++i) {
        const Tensor x = values({33}, 100 * t + i);
        expect_same(f(i % 2 ? x : neg(x)), either(i % 2 ? x : neg(x)));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Switch, RunsTheBranchOfTheIndex) {
  const std::vector<TensorFn> branches = {[](Span in) { return exp(in[0]); }, [](Span in) { return in[0]; },
                                          [](Span in) { return neg(in[0]); }};
  const auto fn = [&](const Tensor& i, const Tensor& x) { return switch_(i, branches, {x})[0]; };
  const auto f = compile(fn, {.name = "chooser"});
  const Tensor x = values({6}, 1);
  for (int64_t i = 0; i < 3; ++i) expect_same(f(Tensor::scalar(i), x), fn(Tensor::scalar(i), x));
  for (const int64_t i : {int64_t{-1}, int64_t{3}}) {
    const std::string expected = error_of<UsageError>([&] { fn(Tensor::scalar(i), x); });
    expect_part(expected, fmt::format("the index is {}; expected 0 to 2", i));
    EXPECT_EQ(without_place(error_of<UsageError>([&] { f(Tensor::scalar(i), x); })), expected);
  }
  expect_same(f(Tensor::scalar(int64_t{0}), x), exp(x));  // usable after an error
}

TEST(Check, FailsWithTheUsersTextInBothModes) {
  const auto fn = [](const Tensor& x) {
    check(gt(x, 0.0), "x must be positive, see page 3");
    return log(x);
  };
  const auto f = compile(fn);
  const Tensor good = full({3}, 2.0), bad = neg(good);
  expect_same(f(good), fn(good));
  EXPECT_EQ(error_of<UsageError>([&] { fn(bad); }), "x must be positive, see page 3");
  const std::string compiled = error_of<UsageError>([&] { f(bad); });
  EXPECT_EQ(without_place(compiled), "x must be positive, see page 3");
  expect_part(compiled, "[check at control_test.cpp:");
}

TEST(Check, OnlyTheBranchThatRunsIsChecked) {
  const auto guarded = [](const char* text) {
    return [text](Span in) {
      check(gt(sum(in[0]), 0.0), text);
      return exp(in[0]);
    };
  };
  const auto free = [](Span in) { return neg(in[0]); };
  const Tensor bad = full({3}, -1.0);
  const auto in_true =
      compile([&](const Tensor& p, const Tensor& x) { return cond(p, guarded("in true"), free, {x})[0]; });
  const auto in_false =
      compile([&](const Tensor& p, const Tensor& x) { return cond(p, free, guarded("in false"), {x})[0]; });
  expect_same(in_true(scalar(false), bad), neg(bad));
  expect_same(in_false(scalar(true), bad), neg(bad));
  EXPECT_EQ(without_place(error_of<UsageError>([&] { in_true(scalar(true), bad); })), "in true");
  EXPECT_EQ(without_place(error_of<UsageError>([&] { in_false(scalar(false), bad); })), "in false");
}

TEST(Check, StaysWhenNobodyReadsTheBranch) {
  const auto f = compile([](const Tensor& p, const Tensor& x) {
    cond(
        p,
        [&](Span) {
          return cond(
              p,
              [&](Span) {
                check(gt(x, 0.0), "deep inside");
                return x;
              },
              [&](Span) { return x; });
        },
        [&](Span) { return x; });
    return exp(x);
  });
  const Tensor bad = full({3}, -1.0);
  expect_same(f(scalar(false), bad), exp(bad));
  EXPECT_EQ(without_place(error_of<UsageError>([&] { f(scalar(true), bad); })), "deep inside");
}

TEST(Check, TheFirstOfSeveralFailsAndLaterWritesDoNotHappen) {
  const auto f = compile([](const Tensor& a, const Tensor& b, const Tensor& x) {
    mul_(x, 2.0);
    check(a, "a");
    add_(x, 1.0);
    check(b, "b");
    add_(x, 1.0);
  });
  const auto after = [&](bool a, bool b) {
    const Tensor x = full({2}, 1.0);
    const std::string text = error_of<UsageError>([&] { f(scalar(a), scalar(b), x); });
    return std::pair(without_place(text), to_contiguous(x).data<float>()[0]);
  };
  EXPECT_EQ(after(false, false), std::pair(std::string("a"), 2.0f));
  EXPECT_EQ(after(true, false), std::pair(std::string("b"), 3.0f));
}

}  // namespace
}  // namespace tutti
