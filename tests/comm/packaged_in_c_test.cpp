// The C interface of packages whose function has collectives, with groups of this library.
#include <gtest/gtest.h>

#include "tests/comm/support/packaged_in_c.h"
#include "tests/comm/support/packaged_ranks.h"
#include "tests/support/temporary_folder.h"

namespace tutti::comm::packaged {
namespace {

class PackagedCollectivesInC : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, PackagedCollectivesInC, ::testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

TEST_P(PackagedCollectivesInC, HaveTheBitsOfTheLiveFunctionAndCodesOfErrors) {
  const testing::TemporaryFolder folder;
  run_apart(GetParam(), 2, [&](ProcessGroup& group) { check_in_c({}, group, folder.path()); });
}

}  // namespace
}  // namespace tutti::comm::packaged
