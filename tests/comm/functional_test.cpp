// Functional collectives against plain definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/comm/support/functional_samples.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"

namespace tutti::comm::functional {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;
using Kind = PointToPoint::Kind;

class Functional : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Functional, Values(1, 2, 3));

const std::vector<Extents> kShapes{{5}, {3, 4}, {}, {0}, {2, 0, 3}, {300, 70}};
constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8};

TEST_P(Functional, AllReduceIsTheSumOfTheRanks) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const Extents& sizes : kShapes) {
      for (const DType dtype : kDTypes) {
        Tensor expected = Tensor::empty(sizes, dtype);
        for (int64_t i = 0; i < expected.numel(); ++i) {
          double sum = 0;
          for (int p = 0; p < group.size(); ++p) sum += (p + 1) * 10 + i % 7;
          facets::write_double(expected, i, sum);
        }
        expect_same(all_reduce(marked(group.rank(), sizes, dtype), "sum", group), expected);
      }
    }
  });
}

TEST_P(Functional, EveryReduceOpHasAName) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int W = group.size();
    const Tensor x = Tensor::of<double>({1.0 + group.rank(), -2.0 * (1 + group.rank())});
    double factorial = 1, sum = 0;
    for (int p = 1; p <= W; ++p) factorial *= p, sum += p;
    const double sign = W % 2 ? -1 : 1;
    expect_same(all_reduce(x, "avg", group), Tensor::of<double>({sum / W, -2 * sum / W}));
    expect_same(all_reduce(x, "product", group), Tensor::of<double>({factorial, sign * factorial * std::pow(2, W)}));
    expect_same(all_reduce(x, "min", group), Tensor::of<double>({1, -2.0 * W}));
    expect_same(all_reduce(x, ReduceKind::max, group), Tensor::of<double>({1.0 * W, -2}));
    expect_same(all_reduce(x, ReduceOp::premul_sum(0.5), group), Tensor::of<double>({sum / 2, -sum}));
    const Tensor bits = Tensor::of<int64_t>({int64_t{1} << group.rank()});
    expect_same(all_reduce(bits, std::string("bor"), group), Tensor::of<int64_t>({(1 << W) - 1}));
    expect_same(all_reduce(bits, "bxor", group), Tensor::of<int64_t>({(1 << W) - 1}));
    expect_same(all_reduce(bits, "band", group), Tensor::of<int64_t>({W == 1 ? 1 : 0}));
  });
}

TEST_P(Functional, AllGatherSingleAlongAnyDim) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const DType dtype : kDTypes) {
      for (const Extents& sizes : {Extents{2, 3, 4}, Extents{1, 0, 4}}) {
        for (int64_t dim = -3; dim < 3; ++dim) {
          std::vector<Tensor> all;
          for (int p = 0; p < group.size(); ++p) all.push_back(marked(p, sizes, dtype));
          expect_same(all_gather_single(all[static_cast<size_t>(group.rank())], dim, group), cat(all, dim));
        }
      }
    }
    expect_same(all_gather_single(Tensor::scalar<int64_t>(group.rank()), 0, group), arange(group.size()));
  });
}

TEST_P(Functional, ReduceScatterSingleAlongAnyDim) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int64_t W = group.size();
    for (const DType dtype : kDTypes) {
      for (int64_t dim = -3; dim < 3; ++dim) {
        Extents sizes{2, 3, 4};
        const size_t d = static_cast<size_t>(normalize_dim(dim, 3, "test"));
        const int64_t part = sizes[d];
        sizes[d] *= W;
        const Tensor x = marked(group.rank(), sizes, dtype);
        const Tensor mine = narrow(all_reduce(x, "sum", group), dim, group.rank() * part, part);
        expect_same(reduce_scatter_single(x, "sum", dim, group), mine);
      }
    }
    expect_same(reduce_scatter_single(zeros({0, 3}), "sum", 0, group), zeros({0, 3}));
  });
}

TEST_P(Functional, AllToAllSingleMovesPartsBetweenRanks) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int W = group.size(), r = group.rank();
    for (const DType dtype : kDTypes) {
      std::vector<Tensor> mine;
      for (int p = 0; p < W; ++p) mine.push_back(narrow(marked(p, {2 * W, 3}, dtype), 0, 2 * r, 2));
      expect_same(all_to_all_single(marked(r, {2 * W, 3}, dtype), group), cat(mine, 0));
      // Rank p cuts p + q rows for rank q: none between 0 and 0.
      std::vector<int64_t> in, out;
      std::vector<Tensor> pieces;
      int64_t rows = 0;
      for (int p = 0; p < W; ++p) {
        in.push_back(r + p), out.push_back(p + r), rows += r + p;
        int64_t before = 0, total = 0;
        for (int q = 0; q < W; ++q) before += q < r ? p + q : 0, total += p + q;
        pieces.push_back(narrow(marked(p, {total, 3}, dtype), 0, before, p + r));
      }
      expect_same(all_to_all_single(marked(r, {rows, 3}, dtype), out, in, group), cat(pieces, 0));
    }
  });
}

TEST_P(Functional, BroadcastAndPermuteTensor) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int W = group.size();
    for (const DType dtype : kDTypes) {
      for (const Extents& sizes : kShapes) {
        for (int src = 0; src < W; ++src)
          expect_same(broadcast(marked(group.rank(), sizes, dtype), src, group), marked(src, sizes, dtype));
        std::vector<int64_t> to_next;
        for (int p = 0; p < W; ++p) to_next.push_back((p + 1) % W);
        expect_same(permute_tensor(marked(group.rank(), sizes, dtype), to_next, group),
                    marked((group.rank() + W - 1) % W, sizes, dtype));
      }
    }
  });
}

TEST_P(Functional, CoalescedCallsAreTheSingleOnesForEachTensor) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int64_t W = group.size();
    const std::vector<Tensor> inputs{marked(group.rank(), {W * 2, W}),
                                     marked(group.rank(), {W}, DType::bf16),
                                     marked(group.rank(), {0, W}),
                                     marked(group.rank(), {W, W * 3}, DType::i64),
                                     marked(group.rank(), {W * 100}, DType::u8),
                                     marked(group.rank(), {W, 1}, DType::f64)};
    const std::vector<int64_t> dims{1, 0, 1, -1, 0, 0};
    const std::vector<Tensor> reduced = all_reduce_coalesced(inputs, "sum", group),
                              gathered = all_gather_single_coalesced(inputs, group, dims),
                              rows = all_gather_single_coalesced(inputs, group),
                              scattered = reduce_scatter_single_coalesced(inputs, "max", group, dims);
    for (size_t i = 0; i < inputs.size(); ++i) {
      expect_same(reduced[i], all_reduce(inputs[i], "sum", group));
      expect_same(gathered[i], all_gather_single(inputs[i], dims[i], group));
      expect_same(rows[i], all_gather_single(inputs[i], 0, group));
      expect_same(scattered[i], reduce_scatter_single(inputs[i], "max", dims[i], group));
    }
    TUTTI_CHECK(all_reduce_coalesced({}, "sum", group).empty() && all_gather_single_coalesced({}, group).empty() &&
                    reduce_scatter_single_coalesced({}, "sum", group).empty() && batch_isend_irecv({}, group).empty(),
                "results of nothing");
  });
}

TEST(FunctionalMessages, RingOfSingleMessagesAndOfBatches) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const int W = group.size(), r = group.rank(), next = (r + 1) % W, last = (r + W - 1) % W;
      for (const DType dtype : kDTypes) {
        for (const Extents& sizes : kShapes) {
          const Tensor token = isend(marked(r, sizes, dtype), next, group, 3),
                       received = irecv(zeros(to_shape(sizes), dtype), last, group, 3);
          TUTTI_CHECK(token.numel() == 0 && token.dtype() == dtype, "the token is {}", describe(token));
          expect_same(received, marked(last, sizes, dtype));
          wait_tensor(token);
        }
      }
      const Tensor like = zeros({300, 7}), ids = zeros({4}, DType::i64);
      const std::vector<PointToPoint> operations{{Kind::irecv, like, last, 1},
                                                 {Kind::isend, marked(r, {300, 7}), next, 1},
                                                 {Kind::isend, marked(r, {4}, DType::i64), next, 2},
                                                 {Kind::irecv, ids, last, 2}};
      const std::vector<Tensor> results = wait_tensors(batch_isend_irecv(operations, group));
      expect_same(results[0], marked(last, {300, 7}));
      expect_same(results[1], zeros({0}));
      expect_same(results[2], zeros({0}, DType::i64));
      expect_same(results[3], marked(last, {4}, DType::i64));
      expect_same(like, zeros({300, 7}));  // a pattern, not a buffer
    });
  }
}

// What the facets say is right, on all ranks at once.
TEST_P(Functional, OpsAgreeWithTheirReferences) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int W = group.size();
    static thread_local int compared;
    compared = 0;
    // Runs the reference of each call beside its kernel.
    struct Beside final : Stage {
      static StageMask mask() {
        static Beside beside;
        static const StageMask registered = register_stage("beside its reference", StagePlace::kernels, &beside);
        return registered;
      }
      void handle(const OpCall& call, std::span<Tensor> outputs) override {
        const StageScope off(0, mask());
        apply(call.op, call.inputs, call.attrs, outputs);
        if (call.op.reference == nullptr || call.op.view != nullptr || std::string_view(call.op.name) == "cat") return;
        const Tensor got = clone(wait_tensor(outputs[0]));
        Tensor expected;
        run_reference(call, {&expected, 1});
        const std::vector<double> a = facets::values(got, got.extents()),
                                  b = facets::values(expected, expected.extents());
        for (size_t i = 0; i < a.size(); ++i)
          TUTTI_CHECK(std::fabs(a[i] - b[i]) <= 1e-5 * std::fabs(b[i]), "{}: {} is not {}", call.op.name, a[i], b[i]);
        ++compared;
      }
    };
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
      const Tensor x = marked(group.rank(), {2 * W, 3}, dtype);
      const std::vector<int64_t> to_first = [&] {
        std::vector<int64_t> s(static_cast<size_t>(W), 0);
        s[0] = 2 * W;
        return s;
      }();
      const std::vector<int64_t> from_all(static_cast<size_t>(W), group.rank() == 0 ? 2 * W : 0);
      const StageScope on(Beside::mask(), 0);
      for (const char* op : {"sum", "avg", "min", "max"})
        all_reduce(x, op, group), reduce_scatter_single(x, op, 0, group);
      if (is_floating(dtype)) all_reduce(x, ReduceOp::premul_sum(1 + group.rank()), group);
      else all_reduce(x, "bxor", group);
      all_gather_single(x, 0, group);
      broadcast(x, W - 1, group);
      all_to_all_single(x, group);
      all_to_all_single(x, from_all, to_first, group);
    }
    TUTTI_CHECK(compared == 3 * 13, "{} calls were compared", compared);
  });
}

TEST(FunctionalOps, EveryOpSaysShapeGradientAndCost) {
  std::set<std::string_view> names;
  for (const OpDef* op : ops()) {
    SCOPED_TRACE(op->name);
    EXPECT_TRUE(names.insert(op->name).second);
    EXPECT_NE(op->infer, nullptr);
    EXPECT_NE(op->cost, nullptr);
    EXPECT_NE(op->gradient.vjp == nullptr, op->gradient.none == nullptr);
    EXPECT_NE(op->kernel == nullptr, op->view == nullptr);
  }
  EXPECT_EQ(names.size(), 17u);
}

}  // namespace
}  // namespace tutti::comm::functional
