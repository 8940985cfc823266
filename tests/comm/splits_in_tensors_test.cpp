// all_to_all of rows whose splits are tensors: eager and compiled, forward and backward, on every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/unary.h"

namespace tutti::comm::functional {
namespace {

using compiled_test::expect_same;
using Rows = std::vector<int64_t>;

constexpr int64_t kColumns = 3;
constexpr int64_t kSpare = 2;  // rows of an input that are not sent

// Step s: rows that rank `from` sends to rank `to`. One rank sends nothing, and the sum over `from` differs from rank
// to rank.
int64_t rows_between(int from, int to, int step) {
  return (from + step) % 4 == 3 ? 0 : (3 * from + 5 * to + 7 * step) % 4;
}
// The same number to every rank in sum, by turns.
int64_t rows_in_turns(int from, int to, int step, int ranks) { return (to - from + step + ranks * 8) % ranks * 2; }

Rows splits_of(int rank, int ranks, const std::function<int64_t(int from, int to)>& rows) {
  Rows splits;
  for (int to = 0; to < ranks; ++to) splits.push_back(rows(rank, to));
  return splits;
}
int64_t total(const Rows& splits) { return std::accumulate(splits.begin(), splits.end(), int64_t{0}); }

// A value that tells rank and place and is exact in every dtype.
double value_at(int rank, int64_t row, int64_t column) {
  return rank * 20 + row % 16 - 3 * static_cast<double>(column);
}

Tensor input_of(int rank, int64_t rows, DType dtype) {
  const Tensor x = Tensor::empty({rows, kColumns}, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) facets::write_double(x, i, value_at(rank, i / kColumns, i % kColumns));
  return x;
}

// By the definition, from the whole table of rows: the rows for `rank`, then identities of sums up to `capacity` rows.
Tensor expected_for(int rank, int ranks, const std::function<int64_t(int from, int to)>& rows, int64_t capacity,
                    DType dtype) {
  const Tensor out = Tensor::empty({capacity, kColumns}, dtype);
  int64_t at = 0;
  for (int p = 0; p < ranks; ++p) {
    int64_t first = 0;
    for (int q = 0; q < rank; ++q) first += rows(p, q);
    for (int64_t i = 0; i < rows(p, rank) * kColumns; ++i)
      facets::write_double(out, at++, value_at(p, first + i / kColumns, i % kColumns));
  }
  for (; at < out.numel(); ++at) facets::write_double(out, at, -0.0);
  return out;
}

class SplitsInTensors : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void run(const std::function<void(ProcessGroup&)>& fn) const {
    run_over(std::get<0>(GetParam()), std::get<1>(GetParam()), fn);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, SplitsInTensors,
                         testing::Combine(testing::ValuesIn(world_transports()), testing::Values(1, 2, 3, 5)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
                         });

TEST_P(SplitsInTensors, BringRowsInRankOrderAndTheirNumbers) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), W = group.size();
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
      for (int step = 0; step < 4; ++step) {
        const auto rows = [&](int from, int to) { return rows_between(from, to, step); };
        const Rows sent = splits_of(me, W, rows), received = splits_of(me, W, [&](int a, int b) { return rows(b, a); });
        const Tensor in = Tensor::of(sent), out = Tensor::of(received);
        const Tensor x = input_of(me, total(sent), dtype), larger = input_of(me, total(sent) + kSpare, dtype);
        for (const bool dense : {true, false}) {
          const auto arranged = [&](const Tensor& t) { return dense ? t : facets::strided_copy(t); };
          const Tensor exact = all_to_all_single(arranged(x), arranged(out), arranged(in), total(received), group);
          expect_same(exact, expected_for(me, W, rows, total(received), dtype));
          for (const int64_t capacity : {total(received), total(received) + 5}) {
            const auto [padded, numbers] = all_to_all_v_padded_single(arranged(larger), arranged(in), capacity, group);
            expect_same(padded, expected_for(me, W, rows, capacity, dtype));
            expect_same(numbers, out);
          }
        }
      }
    }
  });
}

TEST_P(SplitsInTensors, OfAGroupWriteOutputsOfAnyStrides) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), W = group.size();
    const auto rows = [](int from, int to) { return rows_between(from, to, 1) + 3000; };
    const Rows sent = splits_of(me, W, rows), received = splits_of(me, W, [&](int a, int b) { return rows(b, a); });
    const int64_t capacity = total(received) + 7;
    const Tensor output = facets::strided_copy(zeros({capacity, kColumns})),
                 numbers = facets::strided_copy(zeros({W}, DType::i64));
    const Work work = group.all_to_all_v_padded_single(output, numbers, input_of(me, total(sent), DType::f32),
                                                       Tensor::of(sent), {.async = true});
    work.wait();
    expect_same(output, expected_for(me, W, rows, capacity, DType::f32));
    expect_same(numbers, Tensor::of(received));
  });
}

// Rows go to the ranks that the data name, are changed there, and come back: counted, exchanged and returned in one
// graph.
TEST_P(SplitsInTensors, ComputedFromDataAreOneGraphForAllSteps) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), W = group.size();
    constexpr int64_t kRows = 12;
    const int64_t capacity = kRows * W;
    const auto experts = [](const Tensor& rows) { return tanh(mul(rows, 0.25)); };
    int traces = 0;
    const auto route = [&](const Tensor& x, const Tensor& destinations) {
      ++traces;
      const Tensor tokens = mul(x, 2.0), ranks = unsqueeze(arange(0, W), 1);
      const Tensor splits = sum(cast(eq(unsqueeze(destinations, 0), ranks), DType::i64), {.dims = {1}});
      const auto [rows, numbers] = all_to_all_v_padded_single(tokens, splits, capacity, group);
      const PaddedRows back = all_to_all_v_padded_single(experts(rows), numbers, tokens.sizes()[0], group);
      return std::vector<Tensor>{rows, numbers, back.output, back.output_splits};
    };
    const auto f = compile(route, {.name = "route"});
    int compiled_traces = 0;
    for (int step = 0; step < 6; ++step) {
      const Tensor x = compiled_test::values({kRows, kColumns}, me, static_cast<uint64_t>(step) + 1),
                   destinations = Tensor::empty({kRows}, DType::i64);
      for (int64_t i = 0; i < kRows; ++i)
        destinations.data<int64_t>()[i] = step == 2   ? 0
                                          : step == 4 ? W - 1
                                                      : std::min<int64_t>(W - 1, i / (1 + (me + step) % 5));
      const Tensor a = requires_grad_(clone(x)), b = requires_grad_(clone(x));
      traces = 0;
      const std::vector<Tensor> got = f(a, destinations);
      compiled_traces += traces;
      const std::vector<Tensor> wanted = route(b, destinations);
      for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], wanted[i]);
      expect_same(got[3],
                  sum(cast(eq(unsqueeze(destinations, 0), unsqueeze(arange(0, W), 1)), DType::i64), {.dims = {1}}));
      expect_same(got[2], tanh(mul(mul(x, 2.0), 0.25)));
      const auto pull = [](const std::vector<Tensor>& results) {
        backward(add(sum(mul(results[0], 0.3)), sum(mul(results[2], 3.0))));
      };
      pull(got), pull(wanted);
      expect_same(grad_of(a), grad_of(b));
    }
    const CompileStatistics s = f.statistics();
    TUTTI_CHECK(s.compiles == 1 && s.members == 0 && s.continuations == 0 && compiled_traces == 1 + s.looks,
                "{} compiles, {} members, {} segments, {} traces, {} looks", s.compiles, s.members, s.continuations,
                compiled_traces, s.looks);
  });
}

// Both sides' splits are tensors, those of the receiver the pending result of another collective.
TEST_P(SplitsInTensors, ThatAreStillOnTheirWayAreWaitedFor) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), W = group.size();
    const auto fn = [&](const Tensor& x, const Tensor& in) {
      const Tensor out = all_to_all_single(in, group);
      return tanh(all_to_all_single(mul(x, 0.5), out, in, x.sizes()[0], group));
    };
    const auto f = compile(fn, {.name = "rows in turns"});
    for (int step = 0; step < 4; ++step) {
      const auto rows = [&](int from, int to) { return rows_in_turns(from, to, step, W); };
      const Rows sent = splits_of(me, W, rows);
      const Tensor x = input_of(me, total(sent), DType::f32), a = requires_grad_(clone(x)),
                   b = requires_grad_(clone(x));
      const Tensor got = f(a, Tensor::of(sent)), wanted = fn(b, Tensor::of(sent));
      expect_same(got, wanted);
      expect_same(wanted, tanh(mul(expected_for(me, W, rows, total(sent), DType::f32), 0.5)));
      backward(sum(mul(got, got))), backward(sum(mul(wanted, wanted)));
      expect_same(grad_of(a), grad_of(b));
    }
    TUTTI_CHECK(f.statistics().compiles == 1 && f.statistics().continuations == 0, "{} compiles",
                f.statistics().compiles);
  });
}

// The cotangent of a row is the weight at the place where it arrived; what was not sent has none.
TEST_P(SplitsInTensors, SendCotangentsBackToWhereRowsCameFrom) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), W = group.size();
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool compiled : {false, true}) {
        const auto fn = [&](const Tensor& x, const Tensor& in, const Tensor& weights) {
          const Tensor padded = all_to_all_v_padded_single(x, in, weights.sizes()[0], group).output;
          return mul(padded, weights);
        };
        const auto f = compile(fn);
        for (int step = 0; step < 3; ++step) {
          const auto rows = [&](int from, int to) { return rows_between(from, to, step); };
          const Rows sent = splits_of(me, W, rows);
          const int64_t capacity = 3 * W;
          const Tensor x = requires_grad_(input_of(me, 3 * W + kSpare, dtype)),
                       weights = input_of(me + 1, capacity, dtype);
          backward(sum(compiled ? f(x, Tensor::of(sent), weights) : fn(x, Tensor::of(sent), weights)));
          const Tensor expected = full(x.sizes(), -0.0, grad_of(x).dtype());
          int64_t at = 0;
          for (int q = 0; q < W; ++q) {
            int64_t place = 0;  // in rank q's result
            for (int p = 0; p < me; ++p) place += rows(p, q);
            for (int64_t i = 0; i < sent[static_cast<size_t>(q)] * kColumns; ++i)
              facets::write_double(expected, at++, value_at(q + 1, place + i / kColumns, i % kColumns));
          }
          expect_same(grad_of(x), expected);
        }
        if (compiled) TUTTI_CHECK(f.statistics().compiles == 1, "{} compiles", f.statistics().compiles);
      }
    }
    // Nobody has looked at the numbers of rows, which came with the rows.
    TUTTI_CHECK(WorkRegistry::current().unwaited() == 0, "{} works are left", WorkRegistry::current().unwaited());
  });
}

}  // namespace
}  // namespace tutti::comm::functional
