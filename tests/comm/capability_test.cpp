// can() says yes exactly when the call succeeds: every kind, dtype and reduce op on every transport (over MPI:
// mpi_transport_test.cpp).
#include <gtest/gtest.h>

#include "tests/comm/support/capability_checks.h"
#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/fake/fake_transport.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transport_backend.h"

namespace tutti::comm {
namespace {

constexpr int kRanks = 3;

TEST(Capability, ThreadsKeepTheirWord) {
  run_ranks(kRanks, [](ProcessGroup& group) { check_capabilities(group, true); });
}

TEST(Capability, ProcessesKeepTheirWord) {
  const auto results = run_forked(kRanks, [](ProcessGroup& group) { check_capabilities(group, true); });
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

TEST(Capability, GlooKeepsItsWord) {
  run_ranks(kRanks, [](ProcessGroup& group) { check_capabilities(group, true); }, {.transport = "gloo"});
}

TEST(Capability, TheFakeKeepsItsWord) {
  for (const int size : {1, 5}) {
    std::vector<int> everyone;
    for (int r = 0; r < size; ++r) everyone.push_back(r);
    ProcessGroup group("fake", "fake", size - 1, everyone, nullptr);
    group.set_backend(DeviceKind::cpu, std::make_shared<TransportBackend>(
                                           std::make_unique<FakeTransport>(size - 1, size), GroupLabel{"fake"}));
    check_capabilities(group, false);
  }
}

}  // namespace
}  // namespace tutti::comm
