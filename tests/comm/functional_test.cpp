// Functional collectives against plain definitions, and every gradient against finite differences through the group.
#include "tutti/comm/functional/functional.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/async_result.h"
#include "tutti/comm/group_registry.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm::functional {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;
using Kind = PointToPoint::Kind;

// Values that tell the rank and the place; small enough to be exact in bf16 sums.
Tensor marked(int rank, const Extents& sizes, DType dtype = DType::f32) {
  const Tensor t = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < t.numel(); ++i) facets::write_double(t, i, (rank + 1) * 10 + i % 7);
  return t;
}

std::vector<double> values(const Tensor& t) { return facets::values(wait_tensor(t), t.extents()); }

void expect_same(const Tensor& actual, const Tensor& expected) {
  TUTTI_CHECK(actual.extents() == expected.extents() && actual.dtype() == expected.dtype(), "{} is not {}", describe(actual), describe(expected));
  TUTTI_CHECK(values(actual) == values(expected), "{} is not {}", to_string(actual), to_string(expected));
}

std::string bytes_of(const Tensor& t) { return {static_cast<const char*>(t.storage()->data()), static_cast<size_t>(t.storage()->nbytes())}; }

// Messages of errors are looked for in the text of the exception that run_ranks throws.
template <class Fn>
std::string message_of(Fn fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

#define EXPECT_SAYS(text, ...)                                                                          \
  do {                                                                                                  \
    const std::string message = message_of([&] { __VA_ARGS__; });                                       \
    TUTTI_CHECK(message.find(text) != std::string::npos, "'{}' does not say '{}'", message, text);      \
  } while (false)

class Functional : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Functional, Values(1, 2, 3));

// ---- values ---------------------------------------------------------------------------------------------------------

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
        for (int src = 0; src < W; ++src) expect_same(broadcast(marked(group.rank(), sizes, dtype), src, group), marked(src, sizes, dtype));
        std::vector<int64_t> to_next;
        for (int p = 0; p < W; ++p) to_next.push_back((p + 1) % W);
        expect_same(permute_tensor(marked(group.rank(), sizes, dtype), to_next, group), marked((group.rank() + W - 1) % W, sizes, dtype));
      }
    }
  });
}

TEST_P(Functional, CoalescedCallsAreTheSingleOnesForEachTensor) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int64_t W = group.size();
    const std::vector<Tensor> inputs{marked(group.rank(), {W * 2, W}), marked(group.rank(), {W}, DType::bf16), marked(group.rank(), {0, W}),
                                     marked(group.rank(), {W, W * 3}, DType::i64), marked(group.rank(), {W * 100}, DType::u8),
                                     marked(group.rank(), {W, 1}, DType::f64)};
    const std::vector<int64_t> dims{1, 0, 1, -1, 0, 0};
    const std::vector<Tensor> reduced = all_reduce_coalesced(inputs, "sum", group), gathered = all_gather_single_coalesced(inputs, group, dims),
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
          const Tensor token = isend(marked(r, sizes, dtype), next, group, 3), received = irecv(zeros(to_shape(sizes), dtype), last, group, 3);
          TUTTI_CHECK(token.numel() == 0 && token.dtype() == dtype, "the token is {}", describe(token));
          expect_same(received, marked(last, sizes, dtype));
          wait_tensor(token);
        }
      }
      const Tensor like = zeros({300, 7}), ids = zeros({4}, DType::i64);
      const std::vector<PointToPoint> operations{{Kind::irecv, like, last, 1}, {Kind::isend, marked(r, {300, 7}), next, 1},
                                                 {Kind::isend, marked(r, {4}, DType::i64), next, 2}, {Kind::irecv, ids, last, 2}};
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
      void handle(const OpCall& call, std::span<Tensor> outputs) override {
        const StageScope off(0, mask_of(static_cast<StageBit>(1)));
        apply(call.op, call.inputs, call.attrs, outputs);
        if (call.op.reference == nullptr || call.op.view != nullptr || std::string_view(call.op.name) == "cat") return;
        const Tensor got = clone(wait_tensor(outputs[0]));
        Tensor expected;
        run_reference(call, {&expected, 1});
        const std::vector<double> a = facets::values(got, got.extents()), b = facets::values(expected, expected.extents());
        for (size_t i = 0; i < a.size(); ++i) TUTTI_CHECK(std::fabs(a[i] - b[i]) <= 1e-5 * std::fabs(b[i]), "{}: {} is not {}", call.op.name, a[i], b[i]);
        ++compared;
      }
    };
    static Beside beside;
    static const bool installed = [] { install_stage(static_cast<StageBit>(1), &beside); return true; }();
    ASSERT_TRUE(installed);
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
      const Tensor x = marked(group.rank(), {2 * W, 3}, dtype);
      const std::vector<int64_t> to_first = [&] { std::vector<int64_t> s(static_cast<size_t>(W), 0); s[0] = 2 * W; return s; }();
      const std::vector<int64_t> from_all(static_cast<size_t>(W), group.rank() == 0 ? 2 * W : 0);
      const StageScope on(mask_of(static_cast<StageBit>(1)), 0);
      for (const char* op : {"sum", "avg", "min", "max"}) all_reduce(x, op, group), reduce_scatter_single(x, op, 0, group);
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
  EXPECT_EQ(names.size(), 16u);
}

// ---- inputs ---------------------------------------------------------------------------------------------------------

// Every function on tensors whose strides are not dense.
std::vector<Tensor> call_everything(ProcessGroup& group, const Tensor& x) {
  const int W = group.size(), r = group.rank(), next = (r + 1) % W, last = (r + W - 1) % W;
  std::vector<Tensor> results{all_reduce(x, "sum", group), all_reduce(x, "max", group), all_gather_single(x, 0, group), all_gather_single(x, 1, group),
                              reduce_scatter_single(x, "sum", 0, group), reduce_scatter_single(x, "avg", 1, group), all_to_all_single(x, group),
                              broadcast(x, W - 1, group)};
  const std::vector<int64_t> equal(static_cast<size_t>(W), x.extent(0) / W);
  results.push_back(all_to_all_single(x, equal, equal, group));
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

TEST_P(Functional, StridesOfInputsDoNotMatter) {
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

TEST_P(Functional, InputsKeepTheirBytesAndMayBeOverwrittenAtOnce) {
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
  for (size_t r = 0; r < results.size(); ++r) EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

// ---- waiting --------------------------------------------------------------------------------------------------------

// A work that ends when told to.
struct ManualWork final : WorkState {
  std::atomic<bool> ended{false};
  std::atomic<int> waits{0};
  std::exception_ptr failure;
  bool advance() override { return ended; }
  bool wait_for(std::chrono::milliseconds limit) override {
    ++waits;
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!ended && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return ended;
  }
  WorkStatus status() const override { return !ended ? WorkStatus::in_progress : failure ? WorkStatus::failed : WorkStatus::completed; }
  std::exception_ptr exception() const override { return ended ? failure : nullptr; }
  void on_end(std::function<void()>) override {}
  std::vector<Tensor> result() const override { return {}; }
};

class WaitTensor : public ::testing::Test {
 protected:
  std::shared_ptr<ManualWork> pending(const Tensor& t) {
    auto state = std::make_shared<ManualWork>();
    attach(t, Work(state));
    return state;
  }
  RankContext context_{RankContext::Options{}};
  RankContext::Scope scope_{context_};
};

TEST_F(WaitTensor, WaitsForAllWorksOfAStorageOnce) {
  const Tensor t = zeros({4});
  const auto first = pending(t), second = pending(t);
  register_work(t, Work(first));  // known already
  EXPECT_EQ(WorkRegistry::current().size(), 2);
  first->ended = second->ended = true;
  const Tensor same = wait_tensor(t);
  EXPECT_EQ(same.storage().get(), t.storage().get());
  EXPECT_EQ(first->waits, 1);
  EXPECT_EQ(second->waits, 1);
  EXPECT_EQ(WorkRegistry::current().size(), 0);
  wait_tensor(t);
  EXPECT_EQ(first->waits, 1) << "the second wait is nothing";
}

TEST_F(WaitTensor, AnyTensorOfTheStorageWaits) {
  const Tensor t = zeros({4});
  for (const Tensor& alias : {narrow(t, 0, 1, 2), detach(t), t.view_as({1}, {1}, 3)}) {
    const auto work = pending(t);
    work->ended = true;
    wait_tensor(alias);
    EXPECT_EQ(work->waits, 1);
  }
}

TEST_F(WaitTensor, StoragesAreToldApartByIdentityAndNotByAddress) {
  const Tensor empty_a = zeros({0}), empty_b = zeros({0});  // neither has memory
  const auto work = pending(empty_a);
  work->ended = true;
  wait_tensor(empty_b);
  EXPECT_EQ(work->waits, 0);
  wait_tensor(empty_a);
  EXPECT_EQ(work->waits, 1);
}

TEST_F(WaitTensor, AThreadOfAnotherRankFindsTheWork) {
  const Tensor t = zeros({4});
  const auto work = pending(t);
  std::jthread other([&] {
    RankContext context{RankContext::Options{}};
    const RankContext::Scope scope(context);
    wait_tensor(t);
  });
  while (work->waits == 0) std::this_thread::yield();
  EXPECT_TRUE(has_works(t)) << "until it has ended, it is to be waited for";
  work->ended = true;
  other.join();
  EXPECT_FALSE(has_works(t));
}

TEST_F(WaitTensor, OpsViewsAndHostReadsWaitByThemselves) {
  const auto ended = [&](const Tensor& t) {
    const auto work = pending(t);
    work->ended = true;
    return work;
  };
  const Tensor t = ones({1});
  auto work = ended(t);
  const Tensor part = narrow(t, 0, 0, 1);
  EXPECT_EQ(work->waits, 0) << "a view reads nothing";
  EXPECT_EQ(add(part, 1.0).item(), 2.0);
  EXPECT_EQ(work->waits, 1);
  work = ended(t);
  EXPECT_EQ(t.item(), 1.0);
  EXPECT_EQ(work->waits, 1);
  work = ended(t);
  EXPECT_EQ(to_string(detach(t)), "[1.0]");
  EXPECT_EQ(work->waits, 1);
  work = ended(t);
  fill_(t, 5);
  EXPECT_EQ(work->waits, 1) << "a write comes after what the collective writes";
}

TEST_F(WaitTensor, AFailureIsThrownEachTime) {
  const Tensor t = zeros({1});
  const auto work = pending(t);
  work->failure = std::make_exception_ptr(EnvironmentError("rank 3 died"));
  work->ended = true;
  EXPECT_THROW(wait_tensor(t), EnvironmentError);
  EXPECT_THROW(add(t, 1.0), EnvironmentError) << "never values that are not there";
  EXPECT_EQ(WorkRegistry::current().unwaited(), 0) << "the failure was told";
}

TEST_F(WaitTensor, ResultsNobodyAskedForAreLetGo) {
  std::shared_ptr<ManualWork> last;
  for (int i = 0; i < 1000; ++i) {
    last = pending(zeros({1}));
    last->ended = true;
  }
  EXPECT_LE(WorkRegistry::current().size(), 65);
}

// A result that nobody reads must not outlive its rank: what it was made with is gone then.
TEST(WorkRegistryAtExit, UnreadResultsEndWithTheGroup) {
  Tensor unread;
  run_ranks(2, [&](ProcessGroup& group) {
    const Tensor mine = all_reduce(ones({100000}), "sum", group);
    if (group.rank() == 0) unread = mine;
    group.barrier();  // the collective before it has ended
  });
  EXPECT_EQ(add(unread, 1.0).data<float>()[0], 3.0f);
}

TEST(WorkRegistryAtExit, CountsWhatIsLeftOver) {
  ::testing::internal::CaptureStderr();
  {
    RankContext context{RankContext::Options{.rank = 7}};
    const RankContext::Scope scope(context);
    for (int i = 0; i < 3; ++i) register_work(zeros({1}), Work(std::make_shared<ManualWork>()));
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("rank 7: 3 works of functional collectives were never waited for"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 7", text.find("rank 7") + 1), std::string::npos) << "one warning";
  EXPECT_EXIT(
      {
        register_work(zeros({1}), Work(std::make_shared<ManualWork>()));
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "1 works of functional collectives");
}

// ---- gradients ------------------------------------------------------------------------------------------------------

using Function = std::function<std::vector<Tensor>(ProcessGroup&, const std::vector<Tensor>&)>;
using Inputs = std::function<std::vector<Tensor>(ProcessGroup&)>;

// The loss of a rank: each result against weights of its own.
Tensor loss_of(ProcessGroup& group, const std::vector<Tensor>& results) {
  Tensor loss = zeros({}, DType::f64);
  for (size_t k = 0; k < results.size(); ++k) {
    const Tensor weights = facets::sample_tensor(100 + 10 * k + static_cast<uint64_t>(group.rank()), results[k].extents(), DType::f64);
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
    TUTTI_CHECK(grad.extents() == inputs[i].extents(), "the gradient of input {} is {}, the input {}", i, describe(grad), describe(inputs[i]));
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
      inputs.push_back(facets::sample_tensor(7 * inputs.size() + static_cast<uint64_t>(group.rank()) + 1, s, DType::f64));
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
  const auto add_row = [&](const char* name, const Inputs& inputs, Function fn) { rows.push_back({name, inputs, std::move(fn)}); };
  const auto premul = [](ProcessGroup& g) { return ReduceOp::premul_sum(0.5 + g.rank()); };  // a factor per rank
  for (const char* op : {"sum", "avg", "min", "max"}) {
    add_row(op, one, [op](ProcessGroup& g, const auto& x) { return none_or(all_reduce(x[0], op, g)); });
    add_row(op, several, [op](ProcessGroup& g, const auto& x) { return all_reduce_coalesced(x, op, g); });
  }
  add_row("premul_sum", one, [=](ProcessGroup& g, const auto& x) { return none_or(all_reduce(x[0], premul(g), g)); });
  add_row("premul_sum_coalesced", several, [=](ProcessGroup& g, const auto& x) { return all_reduce_coalesced(x, premul(g), g); });
  for (const int64_t dim : {0, 1}) {
    add_row("gather", one, [dim](ProcessGroup& g, const auto& x) { return none_or(all_gather_single(x[0], dim, g)); });
    for (const char* op : {"sum", "avg"}) {
      add_row("scatter", parts, [=](ProcessGroup& g, const auto& x) { return none_or(reduce_scatter_single(x[0], op, dim, g)); });
    }
  }
  add_row("gather_scalar", of_sizes([](int, int) { return std::vector<Extents>{{}}; }),
          [](ProcessGroup& g, const auto& x) { return none_or(all_gather_single(x[0], 0, g)); });
  add_row("scatter_premul", parts, [=](ProcessGroup& g, const auto& x) { return none_or(reduce_scatter_single(x[0], premul(g), 0, g)); });
  static const std::vector<int64_t> dims{1, 0, 0};
  add_row("gather_coalesced", several, [](ProcessGroup& g, const auto& x) { return all_gather_single_coalesced(x, g, dims); });
  add_row("scatter_coalesced", several, [](ProcessGroup& g, const auto& x) { return reduce_scatter_single_coalesced(x, "sum", g, dims); });
  add_row("scatter_coalesced_avg", several, [](ProcessGroup& g, const auto& x) { return reduce_scatter_single_coalesced(x, "avg", g); });
  add_row("scatter_coalesced_premul", several, [=](ProcessGroup& g, const auto& x) { return reduce_scatter_single_coalesced(x, premul(g), g); });
  add_row("coalesced_unused", several, [](ProcessGroup& g, const auto& x) {
    // The ranks use different results; the others' cotangents are zero.
    std::vector<Tensor> all = all_reduce_coalesced(x, "sum", g);
    return std::vector<Tensor>{all[static_cast<size_t>(g.rank() % 2)]};
  });
  add_row("all_to_all", parts, [](ProcessGroup& g, const auto& x) { return none_or(all_to_all_single(x[0], g)); });
  add_row("all_to_all_v", of_sizes([](int W, int r) { return std::vector<Extents>{{W * r + W * (W - 1) / 2, 2}}; }), [](ProcessGroup& g, const auto& x) {
    std::vector<int64_t> splits;  // r + p rows between r and p, both ways
    for (int p = 0; p < g.size(); ++p) splits.push_back(p + g.rank());
    return none_or(all_to_all_single(x[0], splits, splits, g));
  });
  add_row("all_to_all_v_one_way", of_sizes([](int W, int r) { return std::vector<Extents>{{r == 0 ? 2 * W : 0}}; }), [](ProcessGroup& g, const auto& x) {
    std::vector<int64_t> in(static_cast<size_t>(g.size()), g.rank() == 0 ? 2 : 0), out(static_cast<size_t>(g.size()), 0);
    out[0] = 2;
    return none_or(all_to_all_single(x[0], out, in, g));
  });
  add_row("broadcast", one, [](ProcessGroup& g, const auto& x) { return none_or(broadcast(x[0], g.size() - 1, g)); });
  add_row("permute", one, [](ProcessGroup& g, const auto& x) {
    std::vector<int64_t> to;
    for (int p = 0; p < g.size(); ++p) to.push_back((p + 1) % g.size());
    return none_or(permute_tensor(x[0], to, g));
  });
  add_row("wait_tensor", one, [](ProcessGroup& g, const auto& x) { return none_or(wait_tensor(all_reduce(wait_tensor(x[0]), "sum", g))); });
  const auto message = of_sizes([](int, int) { return std::vector<Extents>{{3, 2}, {3, 2}}; });
  add_row("messages", message, [](ProcessGroup& g, const auto& x) {
    const int W = g.size(), r = g.rank();
    const Tensor token = isend(x[0], (r + 1) % W, g, 9);
    return std::vector<Tensor>{irecv(x[1], (r + W - 1) % W, g, 9), token};
  });
  add_row("batch", of_sizes([](int, int) { return std::vector<Extents>{{3, 2}, {3, 2}, {4}, {4}}; }), [](ProcessGroup& g, const auto& x) {
    const int W = g.size(), r = g.rank(), next = (r + 1) % W, last = (r + W - 1) % W;
    const std::vector<PointToPoint> operations{{Kind::irecv, x[0], last, 1}, {Kind::isend, x[1], next, 1}, {Kind::isend, x[2], last, 2},
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
INSTANTIATE_TEST_SUITE_P(Rows, FunctionalGradient, ::testing::Combine(Values(2, 3), ::testing::Range<size_t>(0, gradient_rows().size())));

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
      TUTTI_CHECK(grad_of(x).dtype() == DType::f32 && grad_of(x).item() == expected, "the gradient is {}", to_string(grad_of(x)));
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
    EXPECT_SAYS("all_reduce with product has no gradient; sum, avg, premul_sum, min and max", backward(all_reduce(x, "product", group), ones({2})));
    EXPECT_SAYS("reduce_scatter_single with max has no gradient; sum, avg, premul_sum have", backward(reduce_scatter_single(x, "max", 0, group), ones({1})));
    const Tensor inputs[] = {x};
    EXPECT_SAYS("all_reduce_coalesced with product has no gradient", all_reduce_coalesced(inputs, "product", group));
    TUTTI_CHECK(!requires_grad(all_reduce(Tensor::of<int64_t>({1}), "sum", group)), "integers have a gradient");
  });
}

// ---- arguments ------------------------------------------------------------------------------------------------------

TEST(FunctionalArguments, GroupsHaveNames) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto pair = new_group({0, 1}, {.name = "pair"});
    expect_same(all_reduce(ones({1}), "sum", "pair"), full({1}, 2));
    expect_same(all_reduce(ones({1}), "sum", pair), full({1}, 2));
    EXPECT_SAYS("'nobody' is not registered", all_reduce(ones({1}), "sum", "nobody"));
    EXPECT_SAYS("null", all_reduce(ones({1}), "sum", std::shared_ptr<ProcessGroup>()));
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
    EXPECT_SAYS("'pair' is registered but already destroyed", all_reduce(x, "sum", "pair"));
    EXPECT_SAYS("all_reduce: the process group 'pair' it was called with is already destroyed", backward(y, ones({1})));
    group.barrier();
  });
}

TEST(FunctionalArguments, WhatCannotBeIsRefusedBeforeAnythingIsSent) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = ones({3, 4}), ids = Tensor::of<int64_t>({1, 2});
    EXPECT_SAYS("unknown reduce op 'mean'", all_reduce(x, "mean", group));
    EXPECT_SAYS("ReduceOp::premul_sum(factor)", all_reduce(x, "premul_sum", group));
    EXPECT_SAYS("band works on bits and f32", all_reduce(x, "band", group));
    EXPECT_SAYS("premul_sum scales by a real number and i64", all_reduce(ids, ReduceOp::premul_sum(2), group));
    EXPECT_SAYS("reduce_scatter_single: dim 0 of [3, 4] f32 cpu has 3 elements, which 2 ranks do not divide", reduce_scatter_single(x, "sum", 0, group));
    const Tensor list[] = {x};
    EXPECT_SAYS("reduce_scatter_single_coalesced: dim 0 of [3, 4]", reduce_scatter_single_coalesced(list, "sum", group));
    const int64_t dims[] = {1, 1};
    EXPECT_SAYS("2 dims for 1 tensors", reduce_scatter_single_coalesced(list, "sum", group, dims));
    EXPECT_SAYS("all_gather_single", all_gather_single(x, 2, group));
    EXPECT_SAYS("has none; its gather has dim 0 only", all_gather_single(ones({}), 1, group));
    EXPECT_SAYS("has no dims; reshape it to [1]", reduce_scatter_single(ones({}), "sum", 0, group));
    EXPECT_SAYS("all_to_all_single: dim 0 of [3, 4] f32 cpu has 3 elements", all_to_all_single(x, group));
    const std::vector<int64_t> one{3}, bad{1, 1}, good{1, 2}, negative{-1, 4};
    EXPECT_SAYS("1 output splits for a group of 2 ranks", all_to_all_single(x, one, good, group));
    EXPECT_SAYS("the input splits add up to 2; dim 0 of [3, 4] f32 cpu has 3 rows", all_to_all_single(x, good, bad, group));
    EXPECT_SAYS("input split -1; expected 0 or more", all_to_all_single(x, good, negative, group));
    EXPECT_SAYS("root 2 is not a rank of the group", broadcast(x, 2, group));
    const std::vector<int64_t> twice{1, 1}, outside{0, 2};
    EXPECT_SAYS("ranks 0 and 1 have the same destination 1", permute_tensor(x, twice, group));
    EXPECT_SAYS("the destination of rank 1 is 2; legal: 0 to 1", permute_tensor(x, outside, group));
    EXPECT_SAYS("1 destinations for a group of 2 ranks", permute_tensor(x, one, group));
    EXPECT_SAYS("isend: rank", isend(x, group.rank(), group));
    EXPECT_SAYS("irecv: peer 5 is not a rank", irecv(x, 5, group));
    const std::vector<PointToPoint> self{{Kind::isend, x, group.rank()}};
    EXPECT_SAYS("cannot exchange messages with itself", batch_isend_irecv(self, group));
    expect_same(all_reduce(ones({1}), "sum", group), full({1}, 2));  // the group still works
  });
}

TEST(FunctionalArguments, CallsThatDoNotFitFailOnUse) {
  EXPECT_THROW(run_ranks(2, [](ProcessGroup& group) { values(all_reduce(ones({group.rank() + 1}), "sum", group)); }), UsageError);
}

}  // namespace
}  // namespace tutti::comm::functional
