// The C interface of packages whose function has collectives, with groups of this library.
#include <gtest/gtest.h>

#include "tests/comm/support/packaged_in_c.h"
#include "tests/comm/support/packaged_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tutti/comm/collectives_in_c.h"
#include "tutti/deploy/tutti_runtime.hpp"

namespace tutti::comm::packaged {
namespace {

class PackagedCollectivesInC : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, PackagedCollectivesInC, ::testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

TEST_P(PackagedCollectivesInC, HaveTheBitsOfTheLiveFunctionAndCodesOfErrors) {
  const testing::TemporaryFolder folder;
  run_apart(GetParam(), 2, [&](ProcessGroup& group) { check_in_c({}, group, folder.path()); });
}

// The header over the interface in C.
TEST(PackagedCollectivesInCpp, RunInGroupsThatTheProgramBrings) {
  const testing::TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    const ShardedMlp mlp(group);
    const std::string file = file_of(folder.path(), "mlp", group);
    package(file, mlp, options_for(group, "mlp"), values({2, 6}, 0, 1));
    runtime::Package opened(file);
    const Tensor x = values({2, 6}, 0, 2), y = Tensor::empty({2, 3});
    const std::vector<tutti_tensor> in{{x.raw_data(), TUTTI_F32, 2, {2, 6}}}, out{{y.raw_data(), TUTTI_F32, 2, {2, 3}}};
    require_has(error_of<runtime::Error>([&] { opened.run(in, out); }), "has no such group");
    const CollectivesInC collectives(group.shared_from_this());
    opened.set_groups({collectives.table()});
    opened.run(in, out);
    expect_same(y, mlp(x));
  });
}

}  // namespace
}  // namespace tutti::comm::packaged
