// Random numbers in compiled functions: each call draws as an eager run would.
#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {
namespace {

using namespace graph_test;

// What `call` gives for several calls after seed_all(3).
template <class Call>
std::vector<Tensor> drawn(Call call, int calls = 4) {
  seed_all(3);
  std::vector<Tensor> all;
  for (int i = 0; i < calls; ++i) {
    for (const Tensor& t : call(static_cast<uint64_t>(i))) all.push_back(t);
  }
  all.push_back(uniform({3}, next_random_key()));  // the rank is where it should be
  return all;
}

void expect_all_same(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
}

TEST(RandomKeys, EachCallDrawsTheNextAnonymousKeys) {
  const auto fn = [](const Tensor& x) {
    return std::vector{add(dropout(exp(x), 0.5), normal({6}, next_random_key())), randint(0, 99, {4})};
  };
  const auto f = compile(fn);
  const auto run = [](auto&& g) { return drawn([&](uint64_t) { return g(values({5, 6}, 1)); }); };
  const auto got = run(f);
  expect_all_same(got, run(fn));
  EXPECT_NE(to_string(got[0]), to_string(got[2]));
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(RandomKeys, TheGradientHasTheMaskOfItsForward) {
  const auto fn = [](const Tensor& x, const Tensor& w) {
    return sum(mul(dropout(matmul(x, w), 0.4), dropout(x, 0.3)));
  };
  const auto f = compile(fn);
  const auto run = [](auto&& g) {
    return drawn([&](uint64_t seed) {
      const Tensor x = values({7, 7}, seed), w = values({7, 7}, seed + 9);
      requires_grad_(x), requires_grad_(w);
      const Tensor y = g(x, w);
      next_random_key();  // somebody else draws meanwhile
      backward(y);
      return std::vector{detach(y), grad_of(x), grad_of(w)};
    });
  };
  expect_all_same(run(f), run(fn));
}

TEST(RandomKeys, OneThatIsAnArgumentChangesWithoutCompiling) {
  const auto fn = [](const Tensor& x, const RandomKey& key) { return dropout(x, 0.5, key); };
  const auto f = compile(fn);
  for (uint32_t step = 0; step < 5; ++step) {
    const RandomKey key = random_key("layers.0.dropout", 1, step, step % 2);
    expect_same(f(values({40}, 1), key), fn(values({40}, 1), key));
  }
  EXPECT_EQ(f.statistics().compiles, 1);
  RandomKey part = random_key("layers.0.dropout");
  part.first_index = 100;
  expect_same(f(values({40}, 1), part), fn(values({40}, 1), part));
}

TEST(RandomKeys, SizesThatVary) {
  const auto fn = [](const Tensor& x) { return std::vector{dropout(x, 0.5)}; };
  const auto f = compile(fn);
  const auto run = [](auto&& g) {
    return drawn([&](uint64_t i) { return g(values({static_cast<int64_t>(i) + 2, 3}, 1)); }, 8);
  };
  expect_all_same(run(f), run(fn));
  EXPECT_GE(f.statistics().members, 5);
}

TEST(RandomKeys, RecomputedRegionsDrawTheSameAgain) {
  const auto fn = [](const Tensor& x) {
    return checkpoint([](std::span<const Tensor> in) { return mul(dropout(exp(in[0]), 0.5), in[0]); },
                      std::span(&x, 1));
  };
  const auto run = [](auto&& g) {
    return drawn([&](uint64_t seed) {
      const Tensor x = values({6, 8}, seed);
      requires_grad_(x);
      backward(sum(g(x)));
      return std::vector{grad_of(x)};
    });
  };
  expect_all_same(run(compile(fn)), run(fn));
}

TEST(RandomKeys, SegmentsGoOnDrawing) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = dropout(x, 0.5);
    const bool positive = gt(sum(y), 0.0).item_int() != 0;
    return positive ? mul(y, dropout(y, 0.2)) : add(y, uniform({9}, next_random_key()));
  };
  const auto f = compile(fn, {.on_break = CompileOptions::OnBreak::segment});
  const auto run = [](auto&& g) {
    return drawn(
        [&](uint64_t seed) {
          const Tensor x = values({9}, seed);
          requires_grad_(x);
          const Tensor y = g(x);
          backward(sum(y));
          return std::vector{detach(y), grad_of(x)};
        },
        10);
  };
  expect_all_same(run(f), run(fn));
  EXPECT_EQ(f.statistics().continuations, 2);
}

TEST(RandomKeys, VerifiedCallsDrawOnce) {
  const auto fn = [](const Tensor& x) { return std::vector{dropout(x, 0.5)}; };
  const auto run = [](auto&& g) { return drawn([&](uint64_t) { return g(values({5, 6}, 1)); }); };
  expect_all_same(run(compile(fn, {.verify = 1})), run(fn));
}

// Dropouts in several modules, two of them in one, and a region that is computed again.
Tensor with_modules(const Tensor& x) {
  Tensor y = dropout(x, 0.25);
  for (int64_t i = 0; i < 3; ++i) {
    const ModuleScope layer("layers", i);
    y = dropout(mul(y, 1.5), 0.5);
    const ModuleScope inner("mlp");
    y = checkpoint([](std::span<const Tensor> in) { return dropout(exp(in[0]), 0.125); }, std::span(&y, 1));
    y = dropout(y, 0.125);
  }
  return y;
}

// Results and gradients of steps and shards, from two callers that stand in modules of their own.
template <class F>
std::vector<Tensor> of_shards(const F& f, int64_t size_step = 0) {
  seed_all(11);
  std::vector<Tensor> all;
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t shard = 0; shard < 2; ++shard) {
      const DrawScope draws(step, shard);
      for (const char* caller : {"encoder", "decoder"}) {
        const ModuleScope in(caller);
        const Tensor x = requires_grad_(full({5 + step * size_step, 7}, 1.0));
        const Tensor y = f(x);
        backward(sum(y));
        all.push_back(detach(y));
        all.push_back(grad_of(x));
      }
      all.push_back(uniform({3}, next_random_key()));  // ordinals outside of the function are those of an eager run
    }
  }
  return all;
}

TEST(RandomKeys, OfADrawScopeAreThoseOfTheModulesInTheFunction) {
  const auto expected = of_shards(with_modules);
  expect_all_same(of_shards(compile(with_modules)), expected);
  const auto region = [f = compile(with_modules)](const Tensor& x) {
    return checkpoint([&](Span in) { return f(in[0]); }, std::span(&x, 1));
  };
  expect_all_same(of_shards(region), expected);
  EXPECT_NE(to_string(expected[0]), to_string(expected[2])) << "the callers have masks of their own";
}

TEST(RandomKeys, OfADrawScopeInFunctionsOfManySizesAndInSegments) {
  const auto f = compile(with_modules);
  expect_all_same(of_shards(f, 2), of_shards(with_modules, 2));
  EXPECT_GE(f.statistics().members, 1);
  const auto reads = [](const Tensor& x) {
    const Tensor y = with_modules(x);
    const bool positive = gt(sum(y), 0.0).item_int() != 0;
    const ModuleScope in("head");
    return positive ? dropout(y, 0.5) : neg(y);
  };
  expect_all_same(of_shards(compile(reads, {.on_break = CompileOptions::OnBreak::segment})), of_shards(reads));
}

TEST(RandomKeys, VerifiedCallsDrawOnceInADrawScope) {
  const auto expected = of_shards(with_modules);
  expect_all_same(of_shards(compile(with_modules, {.verify = 1})), expected);
  const auto region = [f = compile(with_modules, {.verify = 1})](const Tensor& x) {
    return checkpoint([&](Span in) { return f(in[0]); }, std::span(&x, 1));
  };
  expect_all_same(of_shards(region), expected);
}

TEST(RandomKeys, WhatCannotBeDrawn) {
  const Tensor x = values({4}, 1);
  const auto branch = compile([](const Tensor& t) {
    return cond(
        gt(sum(t), 0.0), [](auto in) { return dropout(in[0], 0.5); }, [](auto in) { return neg(in[0]); }, {t})[0];
  });
  expect_part(error_of<CaptureError>([&] { branch(x); }), "TUTTI-CAPTURE-034");
  const auto inside = compile([](const Tensor& t, const RandomKey& key) {
    return cond(
        gt(sum(t), 0.0), [&](auto in) { return dropout(in[0], 0.5, key); }, [](auto in) { return neg(in[0]); }, {t})[0];
  });
  expect_part(error_of<CaptureError>([&] { inside(x, RandomKey{.key = 1}); }), "with a key of the function around it");
  const auto changed = compile([](const Tensor& t, RandomKey key) {
    ++key.step;
    return dropout(t, 0.5, key);
  });
  expect_part(error_of<CaptureError>([&] { changed(x, RandomKey{.key = 1}); }),
              "changed the key, the step or the virtual shard");
}

TEST(RandomKeys, RegionsHaveTheMaskOfTheirForwardEvenIfOthersDrawBetween) {
  const auto fn = [](const Tensor& x) {
    return checkpoint([](Span in) { return dropout(in[0], 0.5); }, std::span(&x, 1));
  };
  const auto run = [](auto&& g) {
    return drawn([&](uint64_t) {
      const Tensor x = full({64}, 1.0);
      requires_grad_(x);
      const Tensor y = g(x), other = uniform({3}, next_random_key());
      backward(sum(y));
      expect_same(grad_of(x), detach(y));
      return std::vector{detach(y), other};
    });
  };
  const auto expected = run(fn);
  expect_all_same(run(compile(fn)), expected);
  expect_all_same(run([f = compile(fn)](const Tensor& x) {
                    return checkpoint([&](Span in) { return f(in[0]); }, std::span(&x, 1));
                  }),
                  expected);
}

TEST(RandomKeys, AChangedKeyIsNoArgument) {
  const auto refuses = [](auto change) {
    const auto f = compile([=](const Tensor& t, RandomKey key) {
      change(key);
      return dropout(t, 0.5, key);
    });
    expect_part(error_of<CaptureError>([&] { f(values({4}, 1), RandomKey{.key = 1}); }), "TUTTI-CAPTURE-034");
  };
  refuses([](RandomKey& key) { ++key.key; });
  refuses([](RandomKey& key) { key.step = 1; });
  refuses([](RandomKey& key) { ++key.step, ++key.virtual_shard; });
  refuses([](RandomKey& key) { ++key.key, ++key.virtual_shard; });
  const auto drawn_then_changed = compile([](const Tensor& t) {
    RandomKey key = next_random_key();
    key.step = 7;
    return dropout(t, 0.5, key);
  });
  expect_part(error_of<CaptureError>([&] { drawn_then_changed(values({4}, 1)); }), "TUTTI-CAPTURE-034");
  const auto returned =
      compile([](const Tensor& t, const RandomKey& key) { return std::pair(dropout(t, 0.5, key), key); });
  expect_part(error_of<CaptureError>([&] { returned(values({4}, 1), RandomKey{.key = 1}); }),
              "TUTTI-CAPTURE-034 the function returns a RandomKey");
}

}  // namespace
}  // namespace tutti
