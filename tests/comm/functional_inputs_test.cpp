// What functional collectives take: any strides, untouched and free at once; what they refuse.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/functional_samples.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/comm/group_registry.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"

namespace tutti::comm::functional {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;
using Kind = PointToPoint::Kind;

class FunctionalInputs : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FunctionalInputs, Values(1, 2, 3));

// Every function on tensors whose strides are not dense.
std::vector<Tensor> call_everything(ProcessGroup& group, const Tensor& x) {
  const int W = group.size(), r = group.rank(), next = (r + 1) % W, last = (r + W - 1) % W;
  std::vector<Tensor> results{all_reduce(x, "sum", group),
                              all_reduce(x, "max", group),
                              all_gather_single(x, 0, group),
                              all_gather_single(x, 1, group),
                              reduce_scatter_single(x, "sum", 0, group),
                              reduce_scatter_single(x, "avg", 1, group),
                              all_to_all_single(x, group),
                              broadcast(x, W - 1, group)};
  const std::vector<int64_t> equal(static_cast<size_t>(W), x.extent(0) / W);
  results.push_back(all_to_all_single(x, equal, equal, group));
  results.push_back(all_to_all_single(x, Tensor::of(equal), Tensor::of(equal), x.extent(0), group));
  results.push_back(all_to_all_v_padded_single(x, Tensor::of(equal), x.extent(0) + 3, group).output);
  std::vector<int64_t> to_next;
  for (int p = 0; p < W; ++p) to_next.push_back((p + 1) % W);
  results.push_back(permute_tensor(x, to_next, group));
  const std::vector<Tensor> twice{x, x};
  for (const auto& list : {all_reduce_coalesced(twice, "sum", group), all_gather_single_coalesced(twice, group),
                           reduce_scatter_single_coalesced(twice, "sum", group)}) {
    results.insert(results.end(), list.begin(), list.end());
  }
  if (W > 1) {
    results.push_back(isend(x, next, group));
    results.push_back(irecv(x, last, group));
    const std::vector<PointToPoint> operations{{Kind::isend, x, next}, {Kind::irecv, x, last}};
    for (const Tensor& t : batch_isend_irecv(operations, group)) results.push_back(t);
  }
  return results;
}

TEST_P(FunctionalInputs, StridesOfInputsDoNotMatter) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int64_t W = group.size();
    const Tensor dense = marked(group.rank(), {2 * W, 3 * W});
    const std::vector<Tensor> expected = call_everything(group, dense);
    const std::vector<Tensor> views{facets::strided_copy(dense), transpose(clone(transpose(dense, 0, 1)), 0, 1)};
    for (const Tensor& x : views) {
      TUTTI_CHECK(!x.is_contiguous() || W == 0, "the view is dense");
      const std::vector<Tensor> results = call_everything(group, x);
      for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i]);
    }
  });
}

TEST_P(FunctionalInputs, InputsKeepTheirBytesAndMayBeOverwrittenAtOnce) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const int64_t rows : {2, 20000}) {
      const int64_t W = group.size();
      const Tensor x = marked(group.rank(), {rows * W, 3 * W});
      const std::string before = bytes_of(x);
      const uint32_t version = x.version();
      std::vector<Tensor> expected;
      for (const Tensor& t : call_everything(group, x)) expected.push_back(clone(t));
      TUTTI_CHECK(bytes_of(x) == before && x.version() == version, "an input was written");
      const Tensor shortlived = clone(x);
      const std::vector<Tensor> results = call_everything(group, shortlived);
      fill_(shortlived, -1);
      for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i]);
    }
  });
}

// Nobody can read anything of it.
TEST_P(FunctionalInputs, AResultWithoutElementsNeedsNoWait) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int W = group.size();
    const Tensor x = zeros({0, 6});
    const std::vector<int64_t> none(static_cast<size_t>(W), 0);
    std::vector<int64_t> to_next;
    for (int p = 0; p < W; ++p) to_next.push_back((p + 1) % W);
    const std::vector<Tensor> twice{x, x};
    const std::vector<std::pair<const char*, std::function<void()>>> calls = {
        {"all_reduce", [&] { all_reduce(x, "sum", group); }},
        {"all_gather_single", [&] { all_gather_single(x, 0, group); }},
        {"all_gather_single in dim 1", [&] { all_gather_single(x, 1, group); }},
        {"reduce_scatter_single", [&] { reduce_scatter_single(x, "sum", 0, group); }},
        {"reduce_scatter_single in dim 1", [&] { reduce_scatter_single(x, "avg", 1, group); }},
        {"all_to_all_single", [&] { all_to_all_single(x, group); }},
        {"all_to_all_single with splits", [&] { all_to_all_single(x, none, none, group); }},
        {"all_to_all_single with splits in tensors",
         [&] { all_to_all_single(x, Tensor::of(none), Tensor::of(none), 0, group); }},
        {"broadcast", [&] { broadcast(x, W - 1, group); }},
        {"permute_tensor", [&] { permute_tensor(x, to_next, group); }},
        {"all_reduce_coalesced", [&] { all_reduce_coalesced(twice, "sum", group); }},
        {"all_gather_single_coalesced", [&] { all_gather_single_coalesced(twice, group); }},
        {"reduce_scatter_single_coalesced", [&] { reduce_scatter_single_coalesced(twice, "sum", group); }},
    };
    for (const auto& [name, call] : calls) {
      call();
      TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} left {} works", name,
                  WorkRegistry::current().unwaited());
    }
    group.barrier();  // they end before their group does
  });
}

TEST(FunctionalWaits, ARankThatOnlySendsNeedsNoWaitAndTokensDo) {
  run_ranks(2, [](ProcessGroup& group) {
    const bool sends = group.rank() == 0;
    const Tensor x = sends ? ones({3000}) : zeros({0});
    const std::vector<int64_t> to_second{0, 3000}, nothing{0, 0}, from_first{3000, 0};
    const Tensor arrived =
        sends ? all_to_all_single(x, nothing, to_second, group) : all_to_all_single(x, from_first, nothing, group);
    if (sends) {
      TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works are left", WorkRegistry::current().unwaited());
      const Tensor token = isend(zeros({0}), 1, group);
      TUTTI_CHECK(WorkRegistry::current().unwaited() == (has_works(token) ? 1 : 0), "a token wants to be waited for");
      wait_tensor(token);
    } else {
      expect_same(arrived, ones({3000}));
      wait_tensor(irecv(zeros({0}), 0, group));
    }
    group.barrier();
    TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works are left", WorkRegistry::current().unwaited());
  });
}

TEST(FunctionalProcesses, EveryFunctionWorksBetweenProcesses) {
  const auto results = run_forked(3, [](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> owner(&group, [](ProcessGroup*) {});  // run_forked has it on its stack
    for (const int64_t rows : {1, 3000}) {
      const Tensor x = marked(group.rank(), {rows * 3, 6}), leaf = requires_grad_(clone(x));
      const std::vector<Tensor> all = call_everything(group, x);
      std::vector<Tensor> ranks;
      for (int p = 0; p < 3; ++p) ranks.push_back(marked(p, {rows * 3, 6}));
      expect_same(all[0], add(add(ranks[0], ranks[1]), ranks[2]));
      expect_same(all[2], cat(ranks, 0));
      wait_tensors(all);
      backward(sum(mul(all_gather_single(leaf, 1, group), 2.0)));
      expect_same(grad_of(leaf), full({rows * 3, 6}, 6));
    }
    TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "works are left");
  });
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

TEST(FunctionalArguments, GroupsHaveNames) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto pair = new_group({0, 1}, {.name = "pair"});
    expect_same(all_reduce(ones({1}), "sum", "pair"), full({1}, 2));
    expect_same(all_reduce(ones({1}), "sum", pair), full({1}, 2));
    EXPECT_REFUSED("'nobody' is not registered", all_reduce(ones({1}), "sum", "nobody"));
    EXPECT_REFUSED("null", all_reduce(ones({1}), "sum", std::shared_ptr<ProcessGroup>()));
    group.barrier();
  });
}

TEST(FunctionalArguments, BackwardAfterTheGroupIsGoneSaysSo) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = requires_grad_(ones({1}));
    Tensor y;
    {
      const auto pair = new_group({0, 1}, {.name = "pair"});
      y = wait_tensor(all_reduce(x, "sum", pair));
      group.barrier();
    }
    EXPECT_REFUSED("'pair' is registered but already destroyed", all_reduce(x, "sum", "pair"));
    EXPECT_REFUSED("all_reduce: the process group 'pair' it was called with is already destroyed",
                   backward(y, ones({1})));
    group.barrier();
  });
}

TEST(FunctionalArguments, BackwardAfterTheNameIsGoneSaysSo) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto pair = new_group({0, 1}, {.name = "pair"});
    const Tensor x = requires_grad_(ones({1})), y = wait_tensor(all_reduce(x, "sum", pair));
    GroupRegistry::current().remove("pair");
    EXPECT_REFUSED("all_reduce: the process group 'pair' it was called with is not registered on this rank",
                   backward(y, ones({1})));
    group.barrier();
  });
}

TEST(FunctionalArguments, GroupsThatNobodyRegisteredAreFoundAgain) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto first = new_group({0, 1}, {.name = "pair"});
    GroupRegistry::current().remove("pair");
    const auto second = new_group({1, 0}, {.name = "pair"});
    for (const auto& pair : {first, second}) {
      const Tensor x = requires_grad_(full({1}, group.rank() + 1.0));
      const Tensor y = wait_tensor(all_gather_single(x, 0, pair));
      expect_same(detach(y), pair == first ? Tensor::of<float>({1, 2}) : Tensor::of<float>({2, 1}));
      backward(y, ones({2}));
      expect_same(grad_of(x), full({1}, 2));
    }
    group.barrier();
  });
}

// Each rank traces it once, and its graph names the group of the rank.
TEST(FunctionalArguments, RanksThatAreThreadsShareACompiledFunction) {
  const auto f = compile([](const Tensor& x) {
    const Tensor y = mul(x, 2.0);
    return std::pair(wait_tensor(all_reduce(y, "sum", "pair")), wait_tensor(all_gather_single(y, 0, "pair")));
  });
  run_ranks(2, [&](ProcessGroup& group) {
    const auto pair = new_group({0, 1}, {.name = "pair"});
    for (int i = 0; i < 3; ++i) {
      const auto [sum, all] = f(full({3}, group.rank() + 1.0));
      expect_same(sum, full({3}, 6));
      expect_same(all, Tensor::of<float>({2, 2, 2, 4, 4, 4}));
    }
    EXPECT_EQ(f.statistics().compiles, 1);
    group.barrier();
  });
}

TEST(FunctionalArguments, WhatCannotBeIsRefusedBeforeAnythingIsSent) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = ones({3, 4}), ids = Tensor::of<int64_t>({1, 2});
    EXPECT_REFUSED("unknown reduce op 'mean'", all_reduce(x, "mean", group));
    EXPECT_REFUSED("ReduceOp::premul_sum(factor)", all_reduce(x, "premul_sum", group));
    EXPECT_REFUSED("band works on bits and f32", all_reduce(x, "band", group));
    EXPECT_REFUSED("premul_sum scales by a real number and i64", all_reduce(ids, ReduceOp::premul_sum(2), group));
    EXPECT_REFUSED("reduce_scatter_single: dim 0 of [3, 4] f32 cpu has 3 elements, which 2 ranks do not divide",
                   reduce_scatter_single(x, "sum", 0, group));
    const Tensor list[] = {x};
    EXPECT_REFUSED("reduce_scatter_single_coalesced: dim 0 of [3, 4]",
                   reduce_scatter_single_coalesced(list, "sum", group));
    const int64_t dims[] = {1, 1};
    EXPECT_REFUSED("2 dims for 1 tensors", reduce_scatter_single_coalesced(list, "sum", group, dims));
    EXPECT_REFUSED("all_gather_single", all_gather_single(x, 2, group));
    EXPECT_REFUSED("has none; its gather has dim 0 only", all_gather_single(ones({}), 1, group));
    EXPECT_REFUSED("has no dims; reshape it to [1]", reduce_scatter_single(ones({}), "sum", 0, group));
    EXPECT_REFUSED("all_to_all_single: dim 0 of [3, 4] f32 cpu has 3 elements", all_to_all_single(x, group));
    const std::vector<int64_t> one{3}, bad{1, 1}, good{1, 2}, negative{-1, 4};
    EXPECT_REFUSED("1 output splits for a group of 2 ranks", all_to_all_single(x, one, good, group));
    EXPECT_REFUSED("the input splits add up to 2; dim 0 of [3, 4] f32 cpu has 3 rows",
                   all_to_all_single(x, good, bad, group));
    EXPECT_REFUSED("input split -1; expected 0 or more", all_to_all_single(x, good, negative, group));
    EXPECT_REFUSED("root 2 is not a rank of the group", broadcast(x, 2, group));
    const std::vector<int64_t> twice{1, 1}, outside{0, 2};
    EXPECT_REFUSED("ranks 0 and 1 have the same destination 1", permute_tensor(x, twice, group));
    EXPECT_REFUSED("the destination of rank 1 is 2; legal: 0 to 1", permute_tensor(x, outside, group));
    EXPECT_REFUSED("1 destinations for a group of 2 ranks", permute_tensor(x, one, group));
    EXPECT_REFUSED("isend: rank", isend(x, group.rank(), group));
    EXPECT_REFUSED("irecv: peer 5 is not a rank", irecv(x, 5, group));
    const std::vector<PointToPoint> self{{Kind::isend, x, group.rank()}};
    EXPECT_REFUSED("cannot exchange messages with itself", batch_isend_irecv(self, group));
    expect_same(all_reduce(ones({1}), "sum", group), full({1}, 2));  // the group still works
  });
}

TEST(FunctionalArguments, CallsThatDoNotFitFailOnUse) {
  EXPECT_THROW(run_ranks(2, [](ProcessGroup& group) { values(all_reduce(ones({group.rank() + 1}), "sum", group)); }),
               UsageError);
}

}  // namespace
}  // namespace tutti::comm::functional
