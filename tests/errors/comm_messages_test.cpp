// What a user reads when the ranks of a run do not agree, or one is missing.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// The message on every rank; all must be alike.
std::string complaint_of_all(const std::function<void(ProcessGroup&)>& fn) {
  std::vector<std::string> texts(3);
  run_ranks(3, [&](ProcessGroup& group) {
    try {
      fn(group);
    } catch (const UsageError& error) {
      texts[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  return texts[0];
}

const std::string kAdvice = ". All ranks of a group must make the same calls in the same order";

TEST(CommMessages, DifferentShapesNameBothRanks) {
  EXPECT_EQ(
      complaint_of_all([](ProcessGroup& group) { group.all_reduce(Tensor::empty({group.rank() == 2 ? 12 : 10})); }),
      "collective #1 of group '0': the shapes differ: rank 0 called all_reduce(f32 [10], sum), rank 2 called "
      "all_reduce(f32 [12], sum)" +
          kAdvice);
}

TEST(CommMessages, DifferentOperationsNameBothRanks) {
  EXPECT_EQ(complaint_of_all([](ProcessGroup& group) {
              if (group.rank() == 1) group.barrier();
              else group.all_reduce(Tensor::empty({10}));
            }),
            "collective #1 of group '0': the operations differ: rank 0 called all_reduce(f32 [10], sum), rank 1 called "
            "barrier()" +
                kAdvice);
}

TEST(CommMessages, DifferentDtypesNameBothRanks) {
  EXPECT_EQ(complaint_of_all([](ProcessGroup& group) {
              group.all_reduce(Tensor::empty({4}, group.rank() == 1 ? DType::i64 : DType::f32));
            }),
            "collective #1 of group '0': the dtypes differ: rank 0 called all_reduce(f32 [4], sum), rank 1 called "
            "all_reduce(i64 [4], sum)" +
                kAdvice);
}

TEST(CommMessages, DifferentRootsNameBothRanks) {
  EXPECT_EQ(complaint_of_all(
                [](ProcessGroup& group) { group.broadcast(Tensor::empty({4}, DType::u8), group.rank() == 2 ? 1 : 0); }),
            "collective #1 of group '0': the roots differ: rank 0 called broadcast(u8 [4], root 0), rank 2 called "
            "broadcast(u8 [4], root 1)" +
                kAdvice);
}

TEST(CommMessages, TooManyRowsNameTheRankAndItsCapacity) {
  EXPECT_EQ(complaint_of_all([](ProcessGroup& group) {
              const Tensor splits = Tensor::of<int64_t>({1, 0, group.rank() == 2 ? 3 : 1});
              group.all_to_all_v_padded_single(Tensor::empty({4}), Tensor::empty({3}, DType::i64), Tensor::empty({5}),
                                               splits);
            }),
            "collective #1 of group '0', all_to_all_v_padded_single: rank 2 would receive 5 rows, 3 of them (the most) "
            "from rank 2, more than its capacity "
            "of 4; nothing was written. Give it more capacity, or send it fewer rows");
}

TEST(CommMessages, AWrongOutputSizeSaysTheRightOne) {
  EXPECT_EQ(
      complaint_of_all([](ProcessGroup& group) { group.all_gather_single(Tensor::empty({8}), Tensor::empty({4})); }),
      "all_gather_single: the output tensor [8] f32 cpu has 8 elements; expected 12 = 3 ranks times the 4 of the input "
      "tensor [4] f32 cpu");
}

}  // namespace
}  // namespace tutti::comm
