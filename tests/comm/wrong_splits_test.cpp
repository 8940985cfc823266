// Splits in tensors that are wrong on one rank, eager and compiled, on every transport.
#include <gtest/gtest.h>

#include <functional>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"

namespace tutti::comm::functional {
namespace {

using Rows = std::vector<int64_t>;

struct Wrong {
  const char* name;
  // What the errors of all ranks say.
  std::string says;
  // Whether rank 1 refuses its call, which the others are told; otherwise all find out alike.
  bool is_refused;
  std::function<Tensor(ProcessGroup&, const Tensor& x, const Tensor& splits, bool odd)> call;
  Rows odd_splits = {2, 2, 2};  // of rank 1; the others send two rows to each rank
};

std::vector<Wrong> wrong_calls() {
  const auto padded = [](ProcessGroup& g, const Tensor& x, const Tensor& splits, bool) {
    return all_to_all_v_padded_single(x, splits, 10, g).output;
  };
  const auto exact = [](ProcessGroup& g, const Tensor& x, const Tensor& splits, bool) {
    return all_to_all_single(x, Tensor::of<int64_t>({2, 2, 2}), splits, 6, g);
  };
  return {
      {"Negative", "input split -1 of dim 0 with", true, padded, {2, -1, 2}},
      {"TooMany", "the input splits add up to 8; dim 0 of [6, 3] f32 cpu has only 6 rows", true, padded, {2, 2, 4}},
      {"WrongLength",
       "the input splits are [2] i64 cpu; expected i64 [3], one number for each rank",
       true,
       padded,
       {2, 2}},
      {"WrongDtype", "the input splits are [3] i32 cpu; expected i64 [3]", true,
       [=](ProcessGroup& g, const Tensor& x, const Tensor& splits, bool odd) {
         return padded(g, x, odd ? cast(splits, DType::i32) : splits, odd);
       }},
      {"NegativeCapacity", "a capacity of -4 rows", true,
       [](ProcessGroup& g, const Tensor& x, const Tensor& splits, bool odd) {
         return all_to_all_v_padded_single(x, splits, odd ? -4 : 10, g).output;
       }},
      {"Overflow",
       "rank 1 would receive 6 rows, 2 of them (the most) from rank 0, more than its capacity of 5; nothing was "
       "written",
       false,
       [](ProcessGroup& g, const Tensor& x, const Tensor& splits, bool odd) {
         return all_to_all_v_padded_single(x, splits, odd ? 5 : 10, g).output;
       }},
      {"OtherRowsThanOutput", "the output splits add up to 6; dim 0 of [7, 3] f32 cpu has 7 rows", true,
       [](ProcessGroup& g, const Tensor& x, const Tensor& splits, bool odd) {
         return all_to_all_single(x, Tensor::of<int64_t>({2, 2, 2}), splits, odd ? 7 : 6, g);
       }},
      {"NegativeOfExact", "input split -2 of dim 0 with 6 rows", true, exact, {4, -2, 4}},
      {"OtherSum", "the input splits add up to 5", true, exact, {2, 2, 1}},
      {"WrongLengthOfExact", "the input splits are [4] i64 cpu; expected i64 [3]", true, exact, {2, 2, 1, 1}},
      {"OtherViews", "rank 1 sends 12 bytes to rank 0, which expects 24", false, exact, {1, 3, 2}},
  };
}

class WrongSplits : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, WrongSplits, testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

TEST_P(WrongSplits, AreAnErrorOnAllRanksAndTheNextCallsMeet) {
  run_over(GetParam(), 3, [](ProcessGroup& group) {
    const bool odd = group.rank() == 1;
    for (const Wrong& wrong : wrong_calls()) {
      for (const bool compiled : {false, true}) {
        const auto fn = [&](const Tensor& x, const Tensor& splits) {
          return mul(wrong.call(group, x, splits, odd), 2.0);
        };
        std::string text = "nothing was thrown";
        try {
          const Tensor x = compiled_test::values({6, 3}, group.rank(), 1),
                       splits = Tensor::of(odd ? wrong.odd_splits : Rows{2, 2, 2});
          wait_tensor(compiled ? compile(fn)(x, splits) : fn(x, splits));
        } catch (const UsageError& error) {
          text = error.what();
        }
        const bool is_told = text.find("rank 1 refused its call") != std::string::npos;
        TUTTI_CHECK(text.find(wrong.says) != std::string::npos && is_told == (wrong.is_refused && !odd), "{}{}: {}",
                    wrong.name, compiled ? ", compiled" : "", text);
        const Tensor one = Tensor::of<float>({1});
        group.all_reduce(one);
        TUTTI_CHECK(one.item() == 3, "{}: the sum afterwards is {}", wrong.name, one.item());
      }
    }
  });
}

}  // namespace
}  // namespace tutti::comm::functional
