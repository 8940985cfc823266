#include <gtest/gtest.h>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/sample_calls.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

Work scan(ProcessGroup& group, const Tensor& t, const ReduceOp& op = {}, const CallOptions& options = {}) {
  return group.run({.kind = CollectiveKind::scan, .outputs = {&t, 1}, .reduce = op, .options = options});
}

void run_both(int ranks, const std::function<void(ProcessGroup&)>& fn) {
  run_ranks(ranks, fn);
  const auto results = run_forked(ranks, fn);
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

TEST(Scan, GivesEachRankTheSumUpToItself) {
  run_both(4, [](ProcessGroup& group) {
    const int64_t r = group.rank();
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{600'000}}) {
      const Tensor t = Tensor::empty({count}, DType::i64);
      for (int64_t i = 0; i < count; ++i) t.data<int64_t>()[i] = 10 * r + i;
      scan(group, t);
      for (int64_t i = 0; i < count; ++i) {
        TUTTI_CHECK(t.data<int64_t>()[i] == 10 * r * (r + 1) / 2 + (r + 1) * i, "rank {}: element {} of {} is {}", r, i,
                    count, t.data<int64_t>()[i]);
      }
    }
  });
}

TEST(Scan, HasTheBitsOfAnAllReduceOfTheRanksSoFar) {
  constexpr ReduceOp kOps[] = {ReduceKind::sum, ReduceKind::avg, ReduceKind::product, ReduceKind::max};
  run_ranks(3, [&](ProcessGroup& group) {
    const auto first = group.split(group.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2});
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      for (const ReduceOp& op : kOps) {
        const auto values = [&] { return filled(group.rank(), {77}, dtype); };
        const Tensor own = values(), all = values(), two = values(), prefix = values();
        group.all_reduce(all, op);
        first->all_reduce(two, op);
        scan(group, prefix, op);
        const Tensor& expected = group.rank() == 0 ? own : group.rank() == 1 ? two : all;
        TUTTI_CHECK(checksum(std::vector{prefix}) == checksum(std::vector{expected}), "rank {}: {} of {}", group.rank(),
                    name_of(op.kind()), name_of(dtype));
      }
    }
  });
}

TEST(Scan, MultipliesEachRanksValuesByItsFactor) {
  run_ranks(3, [](ProcessGroup& group) {
    const Tensor t = Tensor::of<float>({1, 2});
    const Work work = scan(group, t, ReduceOp::premul_sum(group.rank() + 1), {.async = true});
    work.wait();
    const float factors[] = {1, 3, 6};
    EXPECT_EQ(t.data<float>()[1], 2 * factors[group.rank()]);
  });
}

TEST(Scan, WritesTensorsOfAnyStrides) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor block = Tensor::of<float>({1, 2, 3, 4, 5, 6});
    const Tensor column = block.view_as({3}, {2}, 0);
    scan(group, column);
    const float n = static_cast<float>(group.rank() + 1);
    EXPECT_EQ(block.data<float>()[2], 3 * n);
    EXPECT_EQ(block.data<float>()[3], 4);
  });
}

TEST(Scan, IsFoundWhereTheRanksCallsDiffer) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor t = Tensor::of<float>({1});
    try {
      if (group.rank() == 0) scan(group, t);
      else group.all_reduce(t);
      FAIL() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_NE(
          std::string(error.what()).find("rank 0 called scan(f32 [1], sum), rank 1 called all_reduce(f32 [1], sum)"),
          std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace tutti::comm
