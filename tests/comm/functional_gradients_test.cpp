// Every gradient of the functional collectives against finite differences through the group.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/comm/support/functional_samples.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"

namespace tutti::comm::functional {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;
using Kind = PointToPoint::Kind;

using Function = std::function<std::vector<Tensor>(ProcessGroup&, const std::vector<Tensor>&)>;
using Inputs = std::function<std::vector<Tensor>(ProcessGroup&)>;

// The loss of a rank: each result against weights of its own.
Tensor loss_of(ProcessGroup& group, const std::vector<Tensor>& results) {
  Tensor loss = zeros({}, DType::f64);
  for (size_t k = 0; k < results.size(); ++k) {
    const Tensor weights =
        facets::sample_tensor(100 + 10 * k + static_cast<uint64_t>(group.rank()), results[k].extents(), DType::f64);
    loss = add(loss, sum(mul(results[k], weights)));
  }
  return loss;
}

double total_loss(ProcessGroup& group, const Function& fn, const std::vector<Tensor>& inputs) {
  const NoGradScope no_grad;
  double loss = loss_of(group, fn(group, inputs)).item();
  group.all_reduce_values<double>({&loss, 1});
  return loss;
}

// One element on one rank is moved at a time; the loss is the sum over all ranks.
void check_gradient(ProcessGroup& group, const Inputs& make, const Function& fn) {
  constexpr double kStep = 1e-4, kAccepted = 1e-7;
  const std::vector<Tensor> inputs = make(group);
  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) leaves.push_back(requires_grad_(clone(x)));
  backward(loss_of(group, fn(group, leaves)));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor grad = grad_of(leaves[i]).defined() ? wait_tensor(grad_of(leaves[i])) : zeros_like(inputs[i]);
    TUTTI_CHECK(grad.extents() == inputs[i].extents(), "the gradient of input {} is {}, the input {}", i,
                describe(grad), describe(inputs[i]));
    int64_t elements = inputs[i].numel();
    group.all_reduce_values<int64_t>({&elements, 1}, ReduceKind::max);
    for (int p = 0; p < group.size(); ++p) {
      for (int64_t e = 0; e < elements; ++e) {
        const bool mine = p == group.rank() && e < inputs[i].numel();
        double* x = mine ? inputs[i].data<double>() + e : nullptr;
        const double middle = mine ? *x : 0;
        if (mine) *x = middle + kStep;
        const double up = total_loss(group, fn, inputs);
        if (mine) *x = middle - kStep;
        const double down = total_loss(group, fn, inputs);
        if (mine) *x = middle;
        const double expected = (up - down) / (2 * kStep);
        if (!mine) continue;
        const double actual = facets::values(grad, grad.extents())[static_cast<size_t>(e)];
        TUTTI_CHECK(std::fabs(actual - expected) <= kAccepted * std::max(1.0, std::fabs(expected)),
                    "the gradient of input {} at {} is {}, differences give {}", i, e, actual, expected);
      }
    }
  }
}

Inputs of_sizes(const std::function<std::vector<Extents>(int ranks, int rank)>& sizes) {
  return [sizes](ProcessGroup& group) {
    std::vector<Tensor> inputs;
    for (const Extents& s : sizes(group.size(), group.rank()))
      inputs.push_back(
          facets::sample_tensor(7 * inputs.size() + static_cast<uint64_t>(group.rank()) + 1, s, DType::f64));
    return inputs;
  };
}

struct Row {
  const char* name;
  Inputs inputs;
  Function fn;
};

std::vector<Tensor> none_or(const Tensor& t) { return {t}; }

std::vector<Row> gradient_rows() {
  const auto one = of_sizes([](int, int) { return std::vector<Extents>{{3, 2}}; });
  const auto parts = of_sizes([](int W, int) { return std::vector<Extents>{{W * 2, W}}; });
  const auto several = of_sizes([](int W, int) { return std::vector<Extents>{{W * 2, W}, {W}, {0}}; });
  std::vector<Row> rows;
  const auto add_row = [&](const char* name, const Inputs& inputs, Function fn) {
    rows.push_back({name, inputs, std::move(fn)});
  };
  const auto premul = [](ProcessGroup& g) { return ReduceOp::premul_sum(0.5 + g.rank()); };  // a factor per rank
  for (const char* op : {"sum", "avg", "min", "max"}) {
    add_row(op, one, [op](ProcessGroup& g, const auto& x) { return none_or(all_reduce(x[0], op, g)); });
    add_row(op, several, [op](ProcessGroup& g, const auto& x) { return all_reduce_coalesced(x, op, g); });
  }
  add_row("premul_sum", one, [=](ProcessGroup& g, const auto& x) { return none_or(all_reduce(x[0], premul(g), g)); });
  add_row("premul_sum_coalesced", several,
          [=](ProcessGroup& g, const auto& x) { return all_reduce_coalesced(x, premul(g), g); });
  for (const int64_t dim : {0, 1}) {
    add_row("gather", one, [dim](ProcessGroup& g, const auto& x) { return none_or(all_gather_single(x[0], dim, g)); });
    for (const char* op : {"sum", "avg"}) {
      add_row("scatter", parts,
              [=](ProcessGroup& g, const auto& x) { return none_or(reduce_scatter_single(x[0], op, dim, g)); });
    }
  }
  add_row("gather_scalar", of_sizes([](int, int) { return std::vector<Extents>{{}}; }),
          [](ProcessGroup& g, const auto& x) { return none_or(all_gather_single(x[0], 0, g)); });
  add_row("scatter_premul", parts,
          [=](ProcessGroup& g, const auto& x) { return none_or(reduce_scatter_single(x[0], premul(g), 0, g)); });
  static const std::vector<int64_t> dims{1, 0, 0};
  add_row("gather_coalesced", several,
          [](ProcessGroup& g, const auto& x) { return all_gather_single_coalesced(x, g, dims); });
  add_row("scatter_coalesced", several,
          [](ProcessGroup& g, const auto& x) { return reduce_scatter_single_coalesced(x, "sum", g, dims); });
  add_row("scatter_coalesced_avg", several,
          [](ProcessGroup& g, const auto& x) { return reduce_scatter_single_coalesced(x, "avg", g); });
  add_row("scatter_coalesced_premul", several,
          [=](ProcessGroup& g, const auto& x) { return reduce_scatter_single_coalesced(x, premul(g), g); });
  add_row("coalesced_unused", several, [](ProcessGroup& g, const auto& x) {
    // The ranks use different results; the others' cotangents are zero.
    std::vector<Tensor> all = all_reduce_coalesced(x, "sum", g);
    return std::vector<Tensor>{all[static_cast<size_t>(g.rank() % 2)]};
  });
  add_row("all_to_all", parts, [](ProcessGroup& g, const auto& x) { return none_or(all_to_all_single(x[0], g)); });
  add_row("all_to_all_v", of_sizes([](int W, int r) { return std::vector<Extents>{{W * r + W * (W - 1) / 2, 2}}; }),
          [](ProcessGroup& g, const auto& x) {
            std::vector<int64_t> splits;  // r + p rows between r and p, both ways
            for (int p = 0; p < g.size(); ++p) splits.push_back(p + g.rank());
            return none_or(all_to_all_single(x[0], splits, splits, g));
          });
  add_row("all_to_all_v_one_way", of_sizes([](int W, int r) { return std::vector<Extents>{{r == 0 ? 2 * W : 0}}; }),
          [](ProcessGroup& g, const auto& x) {
            std::vector<int64_t> in(static_cast<size_t>(g.size()), g.rank() == 0 ? 2 : 0),
                out(static_cast<size_t>(g.size()), 0);
            out[0] = 2;
            return none_or(all_to_all_single(x[0], out, in, g));
          });
  // Rank r sends 1 + (r + p) % 2 rows to rank p, and has one more that stays; the result has rows to spare.
  add_row("all_to_all_v_padded", of_sizes([](int W, int) { return std::vector<Extents>{{2 * W + 1, 2}}; }),
          [](ProcessGroup& g, const auto& x) {
            std::vector<int64_t> splits;
            for (int p = 0; p < g.size(); ++p) splits.push_back(1 + (p + g.rank()) % 2);
            return none_or(all_to_all_v_padded_single(x[0], Tensor::of(splits), 3 * g.size(), g).output);
          });
  add_row("broadcast", one, [](ProcessGroup& g, const auto& x) { return none_or(broadcast(x[0], g.size() - 1, g)); });
  add_row("permute", one, [](ProcessGroup& g, const auto& x) {
    std::vector<int64_t> to;
    for (int p = 0; p < g.size(); ++p) to.push_back((p + 1) % g.size());
    return none_or(permute_tensor(x[0], to, g));
  });
  add_row("wait_tensor", one,
          [](ProcessGroup& g, const auto& x) { return none_or(wait_tensor(all_reduce(wait_tensor(x[0]), "sum", g))); });
  const auto message = of_sizes([](int, int) { return std::vector<Extents>{{3, 2}, {3, 2}}; });
  add_row("messages", message, [](ProcessGroup& g, const auto& x) {
    const int W = g.size(), r = g.rank();
    const Tensor token = isend(x[0], (r + 1) % W, g, 9);
    return std::vector<Tensor>{irecv(x[1], (r + W - 1) % W, g, 9), token};
  });
  add_row("batch", of_sizes([](int, int) { return std::vector<Extents>{{3, 2}, {3, 2}, {4}, {4}}; }),
          [](ProcessGroup& g, const auto& x) {
            const int W = g.size(), r = g.rank(), next = (r + 1) % W, last = (r + W - 1) % W;
            const std::vector<PointToPoint> operations{{Kind::irecv, x[0], last, 1},
                                                       {Kind::isend, x[1], next, 1},
                                                       {Kind::isend, x[2], last, 2},
                                                       {Kind::irecv, x[3], next, 2}};
            std::vector<Tensor> results = batch_isend_irecv(operations, g);
            results.pop_back();  // received and not used
            return results;
          });
  add_row("chain", parts, [](ProcessGroup& g, const auto& x) {
    const Tensor whole = all_gather_single(mul(x[0], x[0]), 1, g);
    return none_or(reduce_scatter_single(mul(whole, all_reduce(whole, "avg", g)), "sum", 0, g));
  });
  return rows;
}

class FunctionalGradient : public TestWithParam<std::tuple<int, size_t>> {};
INSTANTIATE_TEST_SUITE_P(Rows, FunctionalGradient,
                         ::testing::Combine(Values(2, 3), ::testing::Range<size_t>(0, gradient_rows().size())));

TEST_P(FunctionalGradient, AgreesWithDifferencesThroughTheGroup) {
  const auto [ranks, index] = GetParam();
  const Row row = gradient_rows()[index];
  SCOPED_TRACE(row.name);
  run_ranks(ranks, [&](ProcessGroup& group) { check_gradient(group, row.inputs, row.fn); });
}

// The loss is the square of a sum over ranks, so its second derivative is the same everywhere.
TEST(FunctionalGradients, MayBeDifferentiatedAgain) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = requires_grad_(Tensor::of<double>({1.0 + group.rank()}));
    const Tensor total = all_reduce(x, "sum", group), inputs[] = {x}, outputs[] = {sum(mul(total, total))};
    const std::vector<Tensor> first = grad(outputs, inputs, {}, {.create_graph = true});
    TUTTI_CHECK(first[0].item() == 2 * 2 * 3.0, "the gradient is {}", first[0].item());  // two losses, each 2 * (1 + 2)
    backward(sum(first[0]));
    TUTTI_CHECK(grad_of(x).item() == 8, "the second derivative is {}", grad_of(x).item());
  });
}

TEST(FunctionalGradients, NaNGoesToWhoHoldsItAndStaysThere) {
  run_ranks(3, [](ProcessGroup& group) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Tensor x = requires_grad_(Tensor::of<double>({group.rank() == 1 ? nan : 1.0, group.rank() == 2 ? 5.0 : 1.0}));
    for (const bool coalesced : {false, true}) {
      set_grad(x, {});
      const Tensor inputs[] = {x};
      const Tensor y = coalesced ? all_reduce_coalesced(inputs, "max", group)[0] : all_reduce(x, "max", group);
      backward(y, Tensor::of<double>({1.0 + group.rank(), 1.0}));
      expect_same(grad_of(x), Tensor::of<double>({group.rank() == 1 ? 6.0 : 0.0, group.rank() == 2 ? 3.0 : 0.0}));
    }
  });
}

TEST(FunctionalGradients, CotangentsOfNarrowFloatsAreReducedInF32) {
  run_ranks(3, [](ProcessGroup& group) {
    // In bf16 the sum of these three is 256; in f32 it is 258.
    const Tensor grad = cast(Tensor::of<float>({group.rank() == 0 ? 256.0f : 1.0f}), DType::bf16);
    const Tensor x = requires_grad_(cast(ones({1}), DType::bf16));
    const auto check = [&](const Tensor& y, const Tensor& cotangent, double expected) {
      set_grad(x, {});
      backward(y, cotangent);
      TUTTI_CHECK(grad_of(x).dtype() == DType::f32 && grad_of(x).item() == expected, "the gradient is {}",
                  to_string(grad_of(x)));
    };
    check(all_reduce(x, "sum", group), grad, 258);
    check(broadcast(x, 1, group), grad, group.rank() == 1 ? 258 : 0);
    const Tensor rows = cat({grad, grad, grad}, 0);
    check(all_gather_single(x, 0, group), rows, 258);
    const Tensor inputs[] = {x};
    check(all_reduce_coalesced(inputs, "sum", group)[0], grad, 258);
    check(all_gather_single_coalesced(inputs, group)[0], rows, 258);
  });
}

// The gradient of what rank 2 received goes to rank 0 who sent it, not to rank 2 itself or its neighbour.
TEST(FunctionalGradients, WhatWasReceivedSendsItsGradientToTheSender) {
  run_ranks(3, [](ProcessGroup& group) {
    const Tensor x = requires_grad_(cast(ones({2}), DType::bf16));
    if (group.rank() == 0) {
      backward(isend(x, 2, group, 4), zeros({0}));
      expect_same(grad_of(x), Tensor::of<float>({3, 5}));
    } else if (group.rank() == 2) {
      backward(irecv(x, 0, group, 4), Tensor::of<float>({3, 5}));
      expect_same(cast(grad_of(x), DType::f32), Tensor::of<float>({0, 0}));
    }
  });
}

TEST(FunctionalGradients, ReductionsWithoutOneSaySo) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = requires_grad_(ones({2}));
    EXPECT_REFUSED("all_reduce with product has no gradient; sum, avg, premul_sum, min and max",
                   backward(wait_tensor(all_reduce(x, "product", group)), ones({2})));
    EXPECT_REFUSED("reduce_scatter_single with max has no gradient; sum, avg, premul_sum have",
                   backward(wait_tensor(reduce_scatter_single(x, "max", 0, group)), ones({1})));
    const Tensor inputs[] = {x};
    EXPECT_REFUSED("all_reduce_coalesced with product has no gradient", all_reduce_coalesced(inputs, "product", group));
    TUTTI_CHECK(!requires_grad(wait_tensor(all_reduce(Tensor::of<int64_t>({1}), "sum", group))),
                "integers have a gradient");
  });
}

}  // namespace
}  // namespace tutti::comm::functional
