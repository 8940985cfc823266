// Collectives in branches and loops of a compiled function, which all ranks choose alike.
#include <gtest/gtest.h>

#include "tests/comm/support/compiled_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"

namespace tutti::comm::functional {
namespace {

using compiled_test::expect_same;
using compiled_test::values;

TEST(CollectivesInBranches, RunInTheBranchThatIsChosen) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto fn = [&](const Tensor& x, const Tensor& which) {
        const Tensor total = all_reduce(sum(x), "sum", group);
        const Tensor y = cond(
            gt(total, 0.0), [&](auto in) { return all_reduce(exp(in[0]), "sum", group); },
            [&](auto in) { return mul(all_reduce(in[0], "min", group), 2.0); }, {x})[0];
        const Tensor z = switch_(
            which,
            {[&](auto in) { return broadcast(in[0], 0, group); },
             [&](auto in) { return neg(all_reduce(in[0], "max", group)); }, [&](auto in) { return exp(in[0]); }},
            {x})[0];
        return std::vector<Tensor>{y, z, all_reduce(add(y, z), "sum", group)};
      };
      const auto f = compile(fn);
      for (const double sign : {1.0, -1.0}) {
        for (int64_t which = 0; which < 3; ++which) {
          const Tensor x = mul(abs(values({4, 5}, group.rank(), 1)), sign), index = Tensor::scalar(which);
          const auto got = f(x, index), expected = fn(x, index);
          for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
        }
      }
      TUTTI_CHECK(f.statistics().compiles == 1, "{} compiles", f.statistics().compiles);
      TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
    });
  }
}

TEST(CollectivesInBranches, RunInEveryRoundOfALoop) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      // Until the sum over ranks is large enough: the condition reads what the collective gave, alike on all ranks.
      const auto fn = [&](const Tensor& x) {
        return while_loop([&](auto in) { return lt(all_reduce(amax(in[0]), "max", group), 50.0); },
                          [&](auto in) { return add(in[0], all_reduce(abs(in[0]), "sum", group)); }, {x})[0];
      };
      const auto f = compile(fn);
      const Tensor x = values({7}, group.rank(), 3);
      expect_same(f(x), fn(x));
      TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
    });
  }
}

TEST(CollectivesInBranches, GradientsGoThroughABranch) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto fn = [&](const Tensor& x, const Tensor& w) {
      return cond(
          gt(all_reduce(sum(detach(x)), "sum", group), -1e6),
          [&](auto in) { return all_reduce(matmul(exp(in[0]), in[1]), "sum", group); },
          [&](auto in) { return matmul(in[0], in[1]); }, {x, w})[0];
    };
    const auto step = [&](const Tensor& x, const Tensor& w) {
      const Tensor y = fn(x, w), loss = sum(mul(y, y));
      const Tensor leaves[] = {x, w};
      return grad(std::span(&loss, 1), leaves);
    };
    const auto f = compile(step);
    const Tensor x = values({3, 4}, group.rank(), 1), w = values({4, 2}, group.rank(), 2);
    requires_grad_(x), requires_grad_(w);
    const auto got = f(x, w), expected = step(x, w);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  });
}

// Ranks that choose differently make different calls; the fingerprints of the calls tell.
TEST(CollectivesInBranches, RanksInDifferentBranchesAreAnError) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto f = compile([&](const Tensor& x, const Tensor& pred) {
      return cond(
          pred, [&](auto in) { return all_reduce(in[0], "sum", group); },
          [&](auto in) { return broadcast(in[0], 0, group); }, {x})[0];
    });
    std::string said;
    try {
      wait_tensor(f(values({4}, group.rank(), 1), Tensor::scalar(group.rank() == 0)));
    } catch (const std::exception& e) {
      said = e.what();
    }
    TUTTI_CHECK(said.find("all_reduce") != std::string::npos && said.find("broadcast") != std::string::npos,
                "said '{}'", said);
  });
}

}  // namespace
}  // namespace tutti::comm::functional
