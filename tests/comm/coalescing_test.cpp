#include "tutti/comm/coalescing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Coalescing, CallsOfManyKindsAreDoneWhenTheirWorkIs) {
  run_ranks(3, [](ProcessGroup& group) {
    const int me = group.rank(), before = (me + 2) % 3;
    const Tensor floats = Tensor::of<float>({1, 2}), ints = Tensor::of<int64_t>({me}),
                 largest = Tensor::of<int64_t>({me});
    const Tensor gathered = Tensor::empty({3}, DType::i64), part = Tensor::empty({1}, DType::i64),
                 got = Tensor::empty({1}, DType::i64);
    Coalescing calls(group);
    calls.all_reduce(floats);
    calls.all_reduce(ints);
    calls.all_reduce(largest, ReduceKind::max);
    calls.all_gather_single(gathered, Tensor::of<int64_t>({me}));
    calls.reduce_scatter_single(part, Tensor::of<int64_t>({0, 1, 2}));
    calls.send(Tensor::of<int64_t>({me}), (me + 1) % 3, 7);
    calls.recv(got, before, 7);
    calls.end().wait();
    EXPECT_EQ(floats.data<float>()[1], 6.0f);
    EXPECT_EQ(ints.item_int(), 3);
    EXPECT_EQ(largest.item_int(), 2);
    for (int p = 0; p < 3; ++p) EXPECT_EQ(gathered.data<int64_t>()[p], p);
    EXPECT_EQ(part.item_int(), 3 * me);
    EXPECT_EQ(got.item_int(), before);
  });
}

TEST(Coalescing, OneAtATimeAndEndedOnce) {
  run_ranks(2, [](ProcessGroup& group) {
    {
      Coalescing calls(group);
      EXPECT_EQ(complaint([&] { Coalescing nested(group); }),
                "coalescing: group '0' is being coalesced already; end() that first");
      calls.end().wait();  // nothing was collected
      EXPECT_EQ(complaint([&] { calls.end(); }), "coalescing: end() of group '0' was called twice");
    }
    {
      Coalescing forgotten(group);
    }
    Coalescing calls(group);
    const Tensor one = Tensor::of<int64_t>({1});
    calls.all_reduce(one);
    calls.end().wait();
    EXPECT_EQ(one.item_int(), 2);
  });
}

TEST(AllGatherCoalesced, IsAllGatherOfEachPair) {
  run_ranks(3, [](ProcessGroup& group) {
    const int me = group.rank();
    for (const bool async : {false, true}) {
      // One per rank of equal sizes, and of other sizes on every rank.
      const std::vector<Tensor> inputs = {Tensor::of<float>({static_cast<float>(me)}),
                                          Tensor::empty({me + 1}, DType::i64)};
      std::fill_n(inputs[1].data<int64_t>(), me + 1, me);
      std::vector<std::vector<Tensor>> outputs(2);
      for (int p = 0; p < 3; ++p) {
        outputs[0].push_back(Tensor::empty({1}));
        outputs[1].push_back(Tensor::empty({p + 1}, DType::i64));
      }
      const Work work = group.all_gather_coalesced(outputs, inputs, {.async = async});
      work.wait();
      EXPECT_EQ(work.result().size(), 6u);
      for (int p = 0; p < 3; ++p) {
        EXPECT_EQ(outputs[0][static_cast<size_t>(p)].item(), p);
        for (int64_t i = 0; i <= p; ++i) EXPECT_EQ(outputs[1][static_cast<size_t>(p)].data<int64_t>()[i], p);
      }
    }
  });
}

TEST(AllGatherCoalesced, IsRefusedBeforeAnyPartOfItBegins) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor one = Tensor::of<float>({1}), two = Tensor::of<float>({1, 2}), whole = Tensor::of<int64_t>({1});
    const std::vector<Tensor> good = {Tensor::empty({1}), Tensor::empty({1})};
    const auto gather = [&](std::vector<std::vector<Tensor>> outputs, std::vector<Tensor> inputs) {
      return complaint([&] { group.all_gather_coalesced(outputs, inputs); });
    };
    EXPECT_EQ(gather({}, {}), "all_gather_coalesced: no tensors given");
    EXPECT_EQ(gather({good}, {one, one}), "all_gather_coalesced: 1 lists of outputs for 2 inputs");
    EXPECT_EQ(gather({good, {one}}, {one, one}),
              "all_gather_coalesced: 1 output tensors for a group of 2 ranks; expected one per rank");
    EXPECT_NE(gather({good, good}, {one, two}).find("differ in size: 2 and 1 elements"), std::string::npos);
    EXPECT_NE(gather({good, good}, {one, whole}).find("differ in dtype"), std::string::npos);
    group.barrier();  // nobody waits for a part
  });
}

}  // namespace
}  // namespace tutti::comm
