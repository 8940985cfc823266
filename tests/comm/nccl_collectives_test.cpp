// Every collective of NcclBackend, over the fake NCCL. Results are compared with what the definitions say.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/comm/support/nccl_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using testing::filled;
using testing::on_gpu;
using testing::value_at;
using testing::values_of;
using testing::with_nccl_ranks;
using Ints = std::vector<int64_t>;

class NcclCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, ::testing::Values(1, 2, 3, 5));

TEST_P(NcclCollectives, BroadcastGivesRootsBits) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const int root = b.size() - 1;
    const Tensor t = on_gpu<int16_t>(b.rank(), {int16_t(b.rank()), 7, int16_t(-b.rank())});
    b.broadcast(t, root, {});
    EXPECT_EQ(values_of<int16_t>(t), (std::vector<int16_t>{int16_t(root), 7, int16_t(-root)}));
  });
}

TEST_P(NcclCollectives, EveryReductionThatIsPromisedIsRight) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const int W = b.size();
    for (int k = 0; k < kNumReduceKinds; ++k) {
      const auto kind = static_cast<ReduceKind>(k);
      const ReduceOp op = kind == ReduceKind::premul_sum ? ReduceOp::premul_sum(0.5) : ReduceOp(kind);
      for (int d = 0; d < kNumDTypes; ++d) {
        const auto dtype = static_cast<DType>(d);
        // Small whole numbers: exact in every format.
        const auto value = [&](int r, int64_t i) {
          return dtype == DType::boolean ? double((r + i) % 2) : double((r + i) % 3);
        };
        const Tensor t = filled(b.rank(), dtype, 9, [&](int64_t i) { return value(b.rank(), i); });
        const Answer answer =
            b.can({.kind = CollectiveKind::all_reduce, .dtype = dtype, .reduce = kind, .device = t.device()});
        if (!answer) {
          try {
            b.all_reduce(t, op, {});
            ADD_FAILURE() << name_of(kind) << " of " << name_of(dtype);
          } catch (const UsageError& error) {
            EXPECT_EQ(error.what(), "all_reduce: " + answer.reason);
          }
          continue;
        }
        b.all_reduce(t, op, {});
        for (int64_t i = 0; i < 9; ++i) {
          double expected = value(0, i) * (kind == ReduceKind::premul_sum ? 0.5 : 1);
          for (int r = 1; r < W; ++r) {
            const double x = value(r, i);
            switch (kind) {
              case ReduceKind::product:
                expected *= x;
                break;
              case ReduceKind::min:
              case ReduceKind::band:
                expected = std::min(expected, x);
                break;
              case ReduceKind::max:
              case ReduceKind::bor:
                expected = std::max(expected, x);
                break;
              case ReduceKind::premul_sum:
                expected += 0.5 * x;
                break;
              default:
                expected += x;
            }
          }
          if (kind == ReduceKind::avg) expected = is_floating(dtype) ? expected / W : std::trunc(expected / W);
          if (dtype == DType::boolean && kind == ReduceKind::sum) expected = std::min(expected, 1.0);
          alignas(8) char rounded[8];
          store_from_double(rounded, dtype, expected);
          EXPECT_EQ(value_at(t, i), load_as_double(rounded, dtype))
              << name_of(kind) << " of " << name_of(dtype) << " at " << i;
        }
      }
    }
  });
}

TEST_P(NcclCollectives, IntegerAveragesTruncateTowardZero) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const Tensor t = on_gpu<int64_t>(b.rank(), {b.rank() == 0 ? -7 : 0, b.rank() == 0 ? 7 : 0});
    b.all_reduce(t, ReduceKind::avg, {});
    EXPECT_EQ(values_of<int64_t>(t), (Ints{-7 / b.size(), 7 / b.size()}));
  });
}

TEST_P(NcclCollectives, ReduceWritesRootOnly) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const Tensor t = on_gpu<int64_t>(b.rank(), {b.rank() + 1, 10});
    b.reduce(t, 0, {}, {});
    const int64_t W = b.size();
    EXPECT_EQ(values_of<int64_t>(t), b.rank() == 0 ? (Ints{W * (W + 1) / 2, 10 * W}) : (Ints{b.rank() + 1, 10}));
  });
}

TEST_P(NcclCollectives, AllGatherTakesPartsOfDifferentSizes) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const auto part = [](int r) { return Ints(static_cast<size_t>(r), 100 + r); };  // rank 0 has none
    std::vector<Tensor> outputs;
    for (int r = 0; r < b.size(); ++r) outputs.push_back(on_gpu(b.rank(), Ints(static_cast<size_t>(r))));
    b.all_gather(outputs, on_gpu(b.rank(), part(b.rank())), {});
    for (int r = 0; r < b.size(); ++r) EXPECT_EQ(values_of<int64_t>(outputs[static_cast<size_t>(r)]), part(r));
  });
}

TEST_P(NcclCollectives, AllGatherSingleAndCoalesced) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const auto W = static_cast<size_t>(b.size());
    const Tensor floats = on_gpu<float>(b.rank(), {float(b.rank()), 0.5f}),
                 bytes = on_gpu<uint8_t>(b.rank(), {uint8_t(b.rank() + 1)});
    const Tensor all_floats = on_gpu(b.rank(), std::vector<float>(2 * W)),
                 all_bytes = on_gpu(b.rank(), std::vector<uint8_t>(W));
    b.all_gather_single(all_floats, floats, {});
    EXPECT_EQ(values_of<float>(all_floats)[2 * (W - 1)], float(W - 1));
    const std::vector<Tensor> outputs{all_floats, all_bytes}, inputs{floats, bytes};
    Work work = b.all_gather_single_coalesced(outputs, inputs, {.async = true});
    work.wait();
    for (size_t r = 0; r < W; ++r) {
      EXPECT_EQ(values_of<float>(all_floats)[2 * r], float(r));
      EXPECT_EQ(values_of<uint8_t>(all_bytes)[r], uint8_t(r + 1));
    }
    EXPECT_EQ(work.result().size(), 2u);
    EXPECT_TRUE(work.result()[1].is_same(all_bytes));
  });
}

TEST_P(NcclCollectives, GatherAndScatter) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const int root = b.size() / 2;
    std::vector<Tensor> parts;
    if (b.rank() == root) {
      for (int r = 0; r < b.size(); ++r) parts.push_back(on_gpu(b.rank(), Ints(2)));
    }
    b.gather(parts, on_gpu<int64_t>(b.rank(), {b.rank(), -b.rank()}), root, {});
    for (size_t r = 0; r < parts.size(); ++r) EXPECT_EQ(values_of<int64_t>(parts[r]), (Ints{int64_t(r), -int64_t(r)}));
    const Tensor back = on_gpu(b.rank(), Ints(2));
    b.scatter(back, parts, root, {});
    EXPECT_EQ(values_of<int64_t>(back), (Ints{b.rank(), -b.rank()}));
  });
}

TEST_P(NcclCollectives, ReduceScatterListsAndSingles) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const int64_t W = b.size(), sum = W * (W - 1) / 2;
    std::vector<Tensor> parts;  // part p has p elements, each p * 10 + the giving rank
    for (int p = 0; p < W; ++p) parts.push_back(on_gpu(b.rank(), Ints(static_cast<size_t>(p), p * 10 + b.rank())));
    const Tensor output = on_gpu(b.rank(), Ints(static_cast<size_t>(b.rank())));
    b.reduce_scatter(output, parts, {}, {});
    EXPECT_EQ(values_of<int64_t>(output), Ints(static_cast<size_t>(b.rank()), b.rank() * 10 * W + sum));
    EXPECT_EQ(values_of<int64_t>(parts.back()),
              Ints(static_cast<size_t>(W - 1), (W - 1) * 10 + b.rank()));  // inputs stay

    Ints all(static_cast<size_t>(2 * W));
    std::iota(all.begin(), all.end(), b.rank());
    const Tensor two = on_gpu(b.rank(), Ints(2));
    b.reduce_scatter_single(two, on_gpu(b.rank(), all), {}, {});
    EXPECT_EQ(values_of<int64_t>(two), (Ints{2 * b.rank() * W + sum, (2 * b.rank() + 1) * W + sum}));
    const std::vector<Tensor> outputs{two, on_gpu<float>(b.rank(), {0})},
        inputs{on_gpu(b.rank(), all), on_gpu(b.rank(), std::vector<float>(static_cast<size_t>(W), 1.5f))};
    b.reduce_scatter_single_coalesced(outputs, inputs, ReduceKind::max, {});
    EXPECT_EQ(values_of<int64_t>(two)[0], 2 * b.rank() + W - 1);
    EXPECT_EQ(values_of<float>(outputs[1])[0], 1.5f);
  });
}

TEST_P(NcclCollectives, AllToAllEvenUnevenAndLists) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const int64_t W = b.size(), r = b.rank();
    // Element s of rank r's input is 10 r + s; of its output 10 s + r.
    Ints input(static_cast<size_t>(W)), expected(static_cast<size_t>(W));
    for (int64_t s = 0; s < W; ++s) {
      input[static_cast<size_t>(s)] = 10 * r + s;
      expected[static_cast<size_t>(s)] = 10 * s + r;
    }
    const Tensor output = on_gpu(b.rank(), Ints(static_cast<size_t>(W)));
    b.all_to_all_single(output, on_gpu(b.rank(), input), {}, {}, {});
    EXPECT_EQ(values_of<int64_t>(output), expected);
    // Rank r sends r rows of two to everybody.
    const Ints in_splits(static_cast<size_t>(W), r);
    Ints out_splits(static_cast<size_t>(W)), rows;
    for (int64_t s = 0; s < W; ++s) {
      out_splits[static_cast<size_t>(s)] = s;
      rows.insert(rows.end(), static_cast<size_t>(2 * s), s);
    }
    const Tensor received = on_gpu(b.rank(), Ints(rows.size()), {W * (W - 1) / 2, 2});
    b.all_to_all_single(received, on_gpu(b.rank(), Ints(static_cast<size_t>(2 * W * r), r), {W * r, 2}), out_splits,
                        in_splits, {});
    EXPECT_EQ(values_of<int64_t>(received), rows);
    std::vector<Tensor> outputs, inputs;
    for (int64_t s = 0; s < W; ++s) {
      inputs.push_back(on_gpu(b.rank(), Ints(static_cast<size_t>(s + 1), r)));
      outputs.push_back(on_gpu(b.rank(), Ints(static_cast<size_t>(r + 1))));
    }
    b.all_to_all(outputs, inputs, {});
    for (int64_t s = 0; s < W; ++s)
      EXPECT_EQ(values_of<int64_t>(outputs[static_cast<size_t>(s)]), Ints(static_cast<size_t>(r + 1), s));
  });
}

TEST_P(NcclCollectives, CoalescedCallsTakeAnyNumberOfTensorsAndDtypes) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const std::vector<Tensor> tensors{on_gpu<float>(b.rank(), {1.5f}), on_gpu<int64_t>(b.rank(), {2, 3}),
                                      on_gpu(b.rank(), std::vector<double>()), on_gpu<double>(b.rank(), {0.25})};
    b.all_reduce_coalesced(tensors, ReduceKind::sum, {});
    EXPECT_EQ(values_of<float>(tensors[0])[0], 1.5f * float(b.size()));
    EXPECT_EQ(values_of<int64_t>(tensors[1])[1], 3 * b.size());
    EXPECT_EQ(values_of<double>(tensors[3])[0], 0.25 * b.size());
  });
}

TEST_P(NcclCollectives, EmptyTensorsAreLegalAndBarriersMeet) {
  with_nccl_ranks(GetParam(), [](NcclBackend& b) {
    const Tensor none = on_gpu(b.rank(), std::vector<float>());
    b.all_reduce(none, {}, {});
    b.broadcast(none, 0, {});
    b.all_gather_single(none, none, {});
    b.barrier({});
  });
}

TEST(NcclMessages, ComeInTheOrderTheyWereSent) {
  with_nccl_ranks(2, [](NcclBackend& b) {
    for (int64_t i = 0; i < 5; ++i) {
      const Tensor t = on_gpu<int64_t>(b.rank(), {i * (1 - b.rank())});
      b.rank() == 0 ? b.send(t, 1, 0, {}) : b.recv(t, 0, 0, {});
      EXPECT_EQ(values_of<int64_t>(t)[0], i);
    }
  });
}

TEST(NcclMessages, ABatchIsOneCall) {
  with_nccl_ranks(3, [](NcclBackend& b) {
    const int next = (b.rank() + 1) % 3, before = (b.rank() + 2) % 3;
    const Tensor mine = on_gpu<int64_t>(b.rank(), {b.rank(), 5}), theirs = on_gpu<int64_t>(b.rank(), {0, 0});
    const std::vector<PointToPoint> operations{{PointToPoint::Kind::isend, mine, next},
                                               {PointToPoint::Kind::irecv, theirs, before}};
    const Work work = b.batch_isend_irecv(operations, {.async = true});
    work.wait();
    EXPECT_EQ(values_of<int64_t>(theirs), (Ints{before, 5}));
    EXPECT_EQ(work.result().size(), 1u);
  });
}

}  // namespace
}  // namespace tutti::comm
