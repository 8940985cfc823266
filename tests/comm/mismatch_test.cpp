// Calls that do not fit together: an error on every rank that names two ranks and the field, no byte written, and a
// group that goes on.
#include <gtest/gtest.h>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/mismatches.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int kRanks = kMismatchRanks;
constexpr int kOdd = 1;  // the rank that calls differently

class Mismatched : public testing::TestWithParam<std::tuple<std::string, Mismatch>> {};
INSTANTIATE_TEST_SUITE_P(Over, Mismatched,
                         testing::Combine(testing::ValuesIn(world_transports()), testing::ValuesIn(mismatches())),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

TEST_P(Mismatched, IsAnErrorOnAllRanksAndTheGroupGoesOn) {
  const auto& [transport, mismatch] = GetParam();
  const auto check = [m = mismatch](ProcessGroup& group) { check_mismatch(group, m); };
  run_over(transport, kRanks, check);
  if (transport != "shm") return;
  // With slots so small that offers come in many parts.
  for (const ForkedResult& result : run_forked(kRanks, check, {.limit = std::chrono::seconds(20)}))
    EXPECT_TRUE(result.succeeded()) << result.error;
}

// The ranks are one call apart: every call is refused, until the rank that has made one too many leaves one out.
TEST(Mismatch, AnExtraCallIsNamedWhenTheNextOneMeetsIt) {
  const auto fn = [](ProcessGroup& group) {
    const auto refusal = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const UsageError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    const Tensor t = Tensor::of<float>({1, 2});
    if (group.rank() == kOdd) {
      const std::string text = refusal([&] { group.barrier(); });
      TUTTI_CHECK(text.find("rank 0 called all_reduce(f32 [2], sum), rank 1 called barrier()") != std::string::npos,
                  "{}", text);
    } else {
      const std::string text = refusal([&] { group.all_reduce(t); });
      TUTTI_CHECK(text.find("rank 0 called all_reduce(f32 [2], sum), rank 1 called barrier()") != std::string::npos,
                  "{}", text);
    }
    group.all_reduce(t);
    TUTTI_CHECK(t.data<float>()[1] == 6, "the sum is {}", t.data<float>()[1]);
  };
  run_ranks(kRanks, fn);
  for (const ForkedResult& result : run_forked(kRanks, fn)) EXPECT_TRUE(result.succeeded()) << result.error;
}

}  // namespace
}  // namespace tutti::comm
