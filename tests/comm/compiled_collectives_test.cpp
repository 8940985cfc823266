// Functional collectives inside compiled functions, on every transport: equal bits, order kept, everything waited for.
#include <gtest/gtest.h>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/comm/groups.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"

namespace tutti::comm::functional {
namespace {

using compiled_test::expect_same;
using compiled_test::values;
using Kind = PointToPoint::Kind;

class CompiledCollectives : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, CompiledCollectives, testing::ValuesIn(world_transports()), [](const auto& info) { return info.param; });

TEST_P(CompiledCollectives, ReducedGatheredAndExchanged) {
  for (const int ranks : {2, 3}) {
    run_over(GetParam(), ranks, [&](ProcessGroup& group) {
      const auto fn = [&](const Tensor& x) {
        const Tensor sum = all_reduce(exp(x), "sum", group);
        const Tensor all = all_gather_single(mul(x, 2.0), 1, group);
        const Tensor part = reduce_scatter_single(all, "avg", 1, group);
        return add(add(sum, part), broadcast(tanh(x), 1, group));
      };
      const auto f = compile(fn, {.name = "collectives"});
      for (uint64_t seed = 1; seed < 4; ++seed) {
        const Tensor x = values({4, 5}, group.rank(), seed);
        expect_same(f(x), fn(x));
      }
      TUTTI_CHECK(f.statistics().compiles == 1, "{} compiles", f.statistics().compiles);
      TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
    });
  }
}

// A stage of a pipeline: receives two messages in the order opposite to that in which they are sent, computes, sends on.
TEST_P(CompiledCollectives, APipelineStageWithReversedTagsIsOneGraph) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const auto first = [&](const Tensor& x) {
      const Tensor a = isend(exp(x), 1, group, 5), b = isend(tanh(x), 1, group, 6);
      return std::vector<Tensor>{a, b, irecv(x, 1, group, 7)};
    };
    const auto second = [&](const Tensor& x) {
      const Tensor b = irecv(x, 0, group, 6), a = irecv(x, 0, group, 5);
      const Tensor y = sub(mul(a, b), x);
      return std::vector<Tensor>{y, isend(y, 0, group, 7)};
    };
    const auto stage = [&](const Tensor& x) { return group.rank() == 0 ? first(x) : second(x); };
    const auto f = compile(stage, {.name = "stage"});
    for (uint64_t seed = 1; seed < 4; ++seed) {
      const Tensor x = values({3, 7}, group.rank(), seed);
      const std::vector<Tensor> got = f(x), expected = stage(x);
      for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    }
    TUTTI_CHECK(f.statistics().compiles == 1, "{} graphs", f.statistics().compiles);
    TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
  });
}

// Messages of one line and of many packets go in turns, small ones behind large ones.
TEST_P(CompiledCollectives, BatchesOfMessagesKeepTheirMembers) {
  run_over(GetParam(), 3, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    const auto fn = [&](const Tensor& x) {
      const Tensor y = mul(x, x);
      const PointToPoint messages[] = {{Kind::irecv, x, before, 2}, {Kind::isend, y, next, 1}, {Kind::isend, x, next, 2}, {Kind::irecv, y, before, 1}};
      const std::vector<Tensor> out = batch_isend_irecv(messages, group);
      return sub(out[3], out[0]);
    };
    const auto f = compile(fn);
    for (const int64_t count : {5, 300'000, 5}) {
      const Tensor x = values({count}, group.rank(), 1);
      expect_same(f(x), fn(x));
      expect_same(f(x), fn(x));
    }
  });
}

TEST_P(CompiledCollectives, GradientsGoThroughTheGroup) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const auto fn = [&](const Tensor& x, const Tensor& w) { return all_reduce(matmul(exp(x), w), "sum", group); };
    const auto f = compile(fn);
    const auto run = [&](auto&& call) {
      const Tensor x = values({3, 4}, group.rank(), 1), w = values({4, 2}, group.rank(), 2);
      requires_grad_(x), requires_grad_(w);
      const Tensor y = call(x, w);
      backward(sum(mul(y, y)));
      return std::vector<Tensor>{grad_of(x), grad_of(w)};
    };
    const auto got = run(f), expected = run(fn);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  });
}

// Nothing of a collective is merged with an equal one, left out, or moved across another.
TEST_P(CompiledCollectives, EqualCallsStayTwoCallsAndUnusedOnesAreMade) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const auto f = compile([&](const Tensor& x) {
      const Tensor a = all_reduce(x, "sum", group), b = all_reduce(x, "sum", group);
      all_reduce(mul(x, 3.0), "max", group);
      return add(a, b);
    });
    f(values({4}, group.rank(), 1));
    const CompileStatistics s = f.statistics();
    TUTTI_CHECK(s.last.calls == 3 && s.last.merged == 0 && s.last.unused == 0, "{} calls, {} merged, {} unused", s.last.calls, s.last.merged, s.last.unused);
  });
}

}  // namespace
}  // namespace tutti::comm::functional
