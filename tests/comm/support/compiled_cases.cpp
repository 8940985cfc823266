#include "tests/comm/support/compiled_cases.h"

#include <ostream>

#include "tests/comm/support/compiled_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/work_registry.h"
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

void reduced_gathered_and_exchanged(ProcessGroup& group) {
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
}

// A stage of a pipeline: receives two messages in the order opposite to that in which they are sent, computes, sends
// on.
void pipeline_stage_with_reversed_tags(ProcessGroup& group) {
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
}

// Messages of one line and of many packets go in turns, small ones behind large ones.
void batches_of_messages_keep_their_members(ProcessGroup& group) {
  const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
  const auto fn = [&](const Tensor& x) {
    const Tensor y = mul(x, x);
    const PointToPoint messages[] = {
        {Kind::irecv, x, before, 2}, {Kind::isend, y, next, 1}, {Kind::isend, x, next, 2}, {Kind::irecv, y, before, 1}};
    const std::vector<Tensor> out = batch_isend_irecv(messages, group);
    return sub(out[3], out[0]);
  };
  const auto f = compile(fn);
  for (const int64_t count : {5, 300'000, 5}) {
    const Tensor x = values({count}, group.rank(), 1);
    expect_same(f(x), fn(x));
    expect_same(f(x), fn(x));
  }
}

void gradients_go_through_the_group(ProcessGroup& group) {
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
}

// Nothing of a collective is merged with an equal one, left out, or moved across another.
void equal_calls_stay_two_calls_and_unused_ones_are_made(ProcessGroup& group) {
  const auto f = compile([&](const Tensor& x) {
    const Tensor a = all_reduce(x, "sum", group), b = all_reduce(x, "sum", group);
    all_reduce(mul(x, 3.0), "max", group);
    return add(a, b);
  });
  f(values({4}, group.rank(), 1));
  const CompileStatistics s = f.statistics();
  TUTTI_CHECK(s.last.calls == 3 && s.last.merged == 0 && s.last.unused == 0, "{} calls, {} merged, {} unused",
              s.last.calls, s.last.merged, s.last.unused);
}

// Equal parts, and rows that rank p sends to rank q: p + q.
void all_to_all_with_and_without_splits(ProcessGroup& group) {
  std::vector<int64_t> splits;
  int64_t rows = 0;
  for (int p = 0; p < group.size(); ++p) splits.push_back(group.rank() + p), rows += splits.back();
  const auto fn = [&](const Tensor& x, const Tensor& y) {
    return std::vector<Tensor>{mul(all_to_all_single(exp(x), group), 2.0),
                               tanh(all_to_all_single(mul(y, 3.0), splits, splits, group))};
  };
  const auto f = compile(fn, {.name = "all_to_all"});
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const Tensor x = values({6 * group.size(), 3}, group.rank(), seed), y = values({rows, 2}, group.rank(), seed + 7);
    const std::vector<Tensor> got = f(x, y), expected = fn(x, y);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
  TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
}

void permutation_of_ranks(ProcessGroup& group) {
  std::vector<int64_t> destinations;
  for (int p = 0; p < group.size(); ++p) destinations.push_back((p + 1) % group.size());
  const auto fn = [&](const Tensor& x) { return add(permute_tensor(exp(x), destinations, group), x); };
  const auto f = compile(fn);
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const Tensor x = values({4, 5}, group.rank(), seed);
    expect_same(f(x), fn(x));
  }
}

void coalesced(ProcessGroup& group) {
  const auto fn = [&](const Tensor& x, const Tensor& y) {
    const Tensor inputs[] = {exp(x), mul(y, 2.0)};
    const std::vector<Tensor> sums = all_reduce_coalesced(inputs, "sum", group),
                              all = all_gather_single_coalesced(inputs, group);
    const std::vector<Tensor> parts = reduce_scatter_single_coalesced(all, "avg", group);
    return std::vector<Tensor>{add(sums[0], parts[0]), sub(parts[1], sums[1]), all[0], all[1]};
  };
  const auto f = compile(fn, {.name = "coalesced"});
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const Tensor x = values({4, 5}, group.rank(), seed), y = values({7}, group.rank(), seed + 3);
    const std::vector<Tensor> got = f(x, y), expected = fn(x, y);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
  TUTTI_CHECK(f.statistics().compiles == 1, "{} compiles", f.statistics().compiles);
  TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works left", WorkRegistry::current().unwaited());
}

}  // namespace

const std::vector<CompiledCase>& compiled_cases() {
  static const std::vector<CompiledCase> cases = {
      {"ReducedGatheredAndExchanged", {2, 3}, reduced_gathered_and_exchanged},
      {"APipelineStageWithReversedTagsIsOneGraph", {2}, pipeline_stage_with_reversed_tags},
      {"BatchesOfMessagesKeepTheirMembers", {3}, batches_of_messages_keep_their_members},
      {"GradientsGoThroughTheGroup", {2}, gradients_go_through_the_group},
      {"EqualCallsStayTwoCallsAndUnusedOnesAreMade", {2}, equal_calls_stay_two_calls_and_unused_ones_are_made},
      {"AllToAllWithAndWithoutSplits", {2, 3}, all_to_all_with_and_without_splits},
      {"PermutationsOfRanks", {2, 3}, permutation_of_ranks},
      {"CoalescedCalls", {2, 3}, coalesced},
  };
  return cases;
}

void PrintTo(const CompiledCase& c, std::ostream* out) { *out << c.name; }

}  // namespace tutti::comm::functional
