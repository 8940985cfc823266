// When the collectives of a compiled function start, and which of them become one call.
#include <gtest/gtest.h>

#include <random>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/forked_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"

namespace tutti::comm::functional {
namespace {

using compiled_test::expect_same;
using compiled_test::values;
using Kind = PointToPoint::Kind;

// The place of `what` among the steps of `f`'s last specialization.
template <class F>
size_t place_of(const F& f, const std::string& what) {
  const std::string text = f.explain();
  const size_t at = text.find(what);
  TUTTI_CHECK(at != std::string::npos, "no '{}' in\n{}", what, text);
  return at;
}

TEST(CollectiveSchedule, StartWhenTheirInputsAreThere) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto fn = [&](const Tensor& x, const Tensor& w) {
        const Tensor y = exp(x);
        const Tensor z = matmul(w, w);
        const Tensor sum = all_reduce(y, "sum", group);
        return add(sum, matmul(z, w));
      };
      const auto f = compile(fn);
      const Tensor x = values({8, 8}, group.rank(), 1), w = values({8, 8}, group.rank(), 2);
      expect_same(f(x, w), fn(x, w));
      TUTTI_CHECK(f.statistics().last.started_early == 1, "{}", f.explain());
      TUTTI_CHECK(place_of(f, "call all_reduce") < place_of(f, "call matmul"), "{}", f.explain());
      const auto late = compile(fn, {.collectives = {.under_way_bytes = 8 * 8 * 4 - 1}});
      expect_same(late(x, w), fn(x, w));
      TUTTI_CHECK(late.statistics().last.started_early == 0 &&
                      place_of(late, "call all_reduce") > place_of(late, "call matmul"),
                  "{}", late.explain());
    });
  }
}

TEST(CollectiveSchedule, NonePassesAnotherOrAMessage) {
  run_ranks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const auto fn = [&](const Tensor& x, const Tensor& w) {
      const Tensor first = all_reduce(matmul(w, w), "sum", group);
      const PointToPoint messages[] = {{Kind::isend, x, other}, {Kind::irecv, x, other}};
      const std::vector<Tensor> got = batch_isend_irecv(messages, group);
      const Tensor second = all_gather_single(x, 0, group);  // its input is there from the beginning
      return std::vector<Tensor>{add(first, w), mul(got[1], 2.0), mul(second, 3.0)};
    };
    const auto f = compile(fn);
    const Tensor x = values({4}, group.rank(), 1), w = values({8, 8}, group.rank(), 2);
    const auto got = f(x, w), expected = fn(x, w);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    TUTTI_CHECK(place_of(f, "call matmul") < place_of(f, "call all_reduce") &&
                    place_of(f, "call all_reduce") < place_of(f, "call batch_isend_irecv") &&
                    place_of(f, "call batch_isend_irecv") < place_of(f, "call all_gather_single"),
                "{}", f.explain());
  });
}

TEST(CollectiveSchedule, SmallNeighboursOfOneKindBecomeOneCall) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto fn = [&](const std::vector<Tensor>& list) {
        std::vector<Tensor> out;
        for (const Tensor& x : list) out.push_back(mul(all_reduce(exp(x), "sum", group), 2.0));
        for (const Tensor& x : list) out.push_back(tanh(all_gather_single(x, 0, group)));
        for (const Tensor& x : list)
          out.push_back(neg(reduce_scatter_single(all_gather_single(x, 0, group), "max", 0, group)));
        return out;
      };
      const auto f = compile(fn, {.collectives = {.bucket_bytes = 1 << 16}});
      std::vector<Tensor> list;
      for (int i = 0; i < 5; ++i) list.push_back(values({i + 1, 3}, group.rank(), static_cast<uint64_t>(i)));
      for (int call = 0; call < 2; ++call) {
        const auto got = f(list), expected = fn(list);
        for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
      }
      // 5 sums are one call, and so are 5 gathers with the one of the first scatter; the others alternate.
      const CompileStatistics s = f.statistics();
      TUTTI_CHECK(s.last.bucketed == 4 + 5, "{} in\n{}", s.last.bucketed, f.explain());
      TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
    });
  }
}

TEST(CollectiveSchedule, WhatNeedsAnotherOrIsAResultKeepsItsOwnCall) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto fn = [&](const Tensor& x) {
      const Tensor a = all_reduce(x, "sum", group);
      const Tensor b = all_reduce(mul(a, 0.5), "sum", group);  // needs a
      const Tensor c = all_reduce(exp(x), "max", group);       // another reduction
      const Tensor d = all_reduce(tanh(x), "max", group);      // a result
      return std::pair(add(add(a, b), c), d);
    };
    const auto f = compile(fn, {.collectives = {.bucket_bytes = 1 << 16}});
    const Tensor x = values({6}, group.rank(), 1);
    const auto got = f(x), expected = fn(x);
    expect_same(got.first, expected.first);
    expect_same(got.second, expected.second);
    TUTTI_CHECK(f.statistics().last.bucketed == 0, "{}", f.explain());
  });
}

TEST(CollectiveSchedule, GradientsOfManyParametersTravelTogether) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto fn = [&](const std::vector<Tensor>& weights, const Tensor& x) {
      Tensor y = x;
      for (const Tensor& w : weights) y = tanh(matmul(y, w));
      const Tensor loss = sum(mul(y, y));
      std::vector<Tensor> grads = grad(std::span(&loss, 1), weights);
      for (Tensor& g : grads) g = mul(all_reduce(g, "sum", group), 0.5);
      return grads;
    };
    std::vector<Tensor> weights;
    for (uint64_t i = 0; i < 6; ++i) weights.push_back(requires_grad_(values({8, 8}, 0, i)));
    const Tensor x = values({3, 8}, group.rank(), 9);
    const auto f = compile(fn, {.collectives = {.bucket_bytes = 3 * 8 * 8 * 4}});
    const auto got = f(weights, x), expected = fn(weights, x);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    TUTTI_CHECK(f.statistics().last.bucketed == 4, "{}", f.explain());  // two calls of three
  });
}

// A program of ops, writes in place and collectives, the same on all ranks. All tensors that it makes.
std::vector<Tensor> random_program(uint64_t seed, const Tensor& x, ProcessGroup& group) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> pool = {x, mul(x, 2.0)};
  for (int i = 0; i < 14; ++i) {
    const Tensor a = pool[random() % pool.size()], b = pool[random() % pool.size()];
    switch (random() % 8) {
      case 0:
        pool.push_back(tanh(a));
        break;
      case 1:
        pool.push_back(sub(a, b));
        break;
      case 2:
        pool.push_back(matmul(a, b));
        break;
      case 3:
        add_(a, 0.25);
        break;
      case 4:
        pool.push_back(all_reduce(a, "max", group));
        break;
      case 5:
        pool.push_back(reduce_scatter_single(all_gather_single(a, 0, group), "sum", 0, group));
        break;
      default:
        pool.push_back(all_reduce(a, "sum", group));
        break;
    }
  }
  wait_tensors(pool);
  return {tanh(pool[pool.size() - 1]), tanh(pool[pool.size() - 2]), tanh(pool[pool.size() / 2]), tanh(pool[1]),
          sum(pool.back())};
}

TEST(CollectiveSchedule, RandomProgramsHaveTheBitsOfEager) {
  run_ranks(2, [](ProcessGroup& group) {
    int64_t bucketed = 0, early = 0;
    for (uint64_t seed = 1; seed <= 80; ++seed) {
      const auto fn = [&](const Tensor& x) { return random_program(seed, x, group); };
      const auto f = compile(fn, {.collectives = {.under_way_bytes = int64_t{1} << (7 + seed % 5),
                                                  .bucket_bytes = int64_t{64} << (seed % 5)}});
      const Tensor given = values({4, 4}, group.rank(), seed), kept = values({4, 4}, group.rank(), seed);
      const std::vector<Tensor> got = f(given), expected = fn(kept);
      for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
      expect_same(given, kept);
      bucketed += f.statistics().last.bucketed, early += f.statistics().last.started_early;
    }
    TUTTI_CHECK(bucketed > 20 && early > 20, "{} in other calls, {} early: the programs try too little", bucketed,
                early);
  });
}

TEST(CollectiveSchedule, RanksThatAreProcessesAgree) {
  for (const int ranks : {1, 2, 3}) {
    const std::vector<ForkedResult> results = run_world(ranks, [](ProcessGroup& group) {
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        const auto fn = [&](const Tensor& x) { return random_program(seed, x, group); };
        const auto f = compile(fn, {.collectives = {.under_way_bytes = 512, .bucket_bytes = 512}, .jobs = 1});
        const std::vector<Tensor> got = f(values({4, 4}, group.rank(), seed)),
                                  expected = fn(values({4, 4}, group.rank(), seed));
        for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
      }
    });
    for (const ForkedResult& r : results)
      EXPECT_TRUE(r.succeeded()) << ranks << " ranks: " << r.error << ", status " << r.wait_status;
  }
}

TEST(CollectiveSchedule, NegativeLimitsAreRefused) {
  try {
    compile([](const Tensor& x) { return x; }, {.collectives = {.under_way_bytes = -3}});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("under_way_bytes is -3"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti::comm::functional
