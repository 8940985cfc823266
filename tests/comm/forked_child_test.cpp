// A fork()ed child of a rank: what it inherits is refused at once, and its parent's groups go on.
// mpi_transport_test.cpp runs the same under mpirun.
#include <gtest/gtest.h>

#include "tests/comm/support/forked_child.h"
#include "tests/comm/support/forked_ranks.h"

namespace tutti::comm {
namespace {

class ForkedChild : public ::testing::TestWithParam<const char*> {};

TEST_P(ForkedChild, IsRefusedAndDisturbsNobody) {
  const std::string transport = GetParam();
  const int ranks = transport == "hier" ? 4 : 2;
  for (const ForkedResult& rank : run_world(ranks, check_forked_child, {.transport = transport})) {
    EXPECT_EQ(rank.wait_status, 0);
    EXPECT_EQ(rank.error, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Over, ForkedChild, ::testing::Values("shm", "gloo", "hier"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutti::comm
