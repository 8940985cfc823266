// Functional collectives inside compiled functions, on every transport: equal bits, order kept, everything waited for.
#include <gtest/gtest.h>

#include "tests/comm/support/compiled_cases.h"
#include "tests/comm/support/transport_worlds.h"

namespace tutti::comm::functional {
namespace {

class CompiledCollectives : public testing::TestWithParam<std::tuple<std::string, CompiledCase>> {};
INSTANTIATE_TEST_SUITE_P(Over, CompiledCollectives,
                         testing::Combine(testing::ValuesIn(world_transports()), testing::ValuesIn(compiled_cases())),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

TEST_P(CompiledCollectives, HaveTheBitsOfEagerOnes) {
  const auto& [transport, c] = GetParam();
  for (const int ranks : c.ranks) run_over(transport, ranks, c.check);
}

}  // namespace
}  // namespace tutti::comm::functional
