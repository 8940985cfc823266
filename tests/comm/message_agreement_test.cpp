// A message whose dtype or length is not the receive's is an error of both ends that names ranks, field and both
// values, on every transport, soon and before a byte is written; the group goes on.
#include "tests/comm/support/message_agreement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/comm/support/transport_worlds.h"
#include "tests/job/support/run_command.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/errors.h"

namespace tutti::comm {
namespace {

class MessageAgreement : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, MessageAgreement, testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

TEST_P(MessageAgreement, BothEndsAreToldAndGoOn) { run_over(GetParam(), 3, check_message_agreement); }

TEST(MessageAgreementMpi, BothEndsAreToldAndGoOn) {
  for (const TransportInfo& info : known_transports()) {
    if (info.name != "mpi" || !info.available) continue;
    const std::string flags = std::string(geteuid() == 0 ? "--allow-run-as-root " : "") + "--oversubscribe";
    const CommandResult result = run_command(
        fmt::format("timeout 100 mpirun {} -n 3 {}/transport_program mpi messages", flags, TUTTI_BINARY_DIR));
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

// The bytes that a cancelled send still owes to its frame are nobody's message.
TEST_P(MessageAgreement, ASendThatIsGivenUpHalfWayIsNoMessage) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const Tensor large = Tensor::empty({500'000});
    std::fill_n(large.data<float>(), large.numel(), group.rank() == 0 ? 1.0f : 2.0f);
    if (group.rank() == 0) {
      std::string text;
      try {
        group.send(large, 1, 3, {.timeout = std::chrono::milliseconds(200)});
      } catch (const TimeoutError& error) {
        text = error.what();
      }
      TUTTI_CHECK(!text.empty(), "the send has ended well");
      std::fill_n(large.data<float>(), large.numel(), 7.0f);
      group.barrier();
      group.send(large, 1, 3);
      return group.barrier().wait();
    }
    group.barrier();
    try {
      group.recv(large, 0, 3);
    } catch (const UsageError& error) {
      TUTTI_CHECK(std::string_view(error.what()).find("the sender cancelled the message") != std::string_view::npos,
                  "{}", error.what());
      group.recv(large, 0, 3);
    }
    for (int64_t i = 0; i < large.numel(); ++i)
      TUTTI_CHECK(large.data<float>()[i] == 7.0f, "element {} is {}", i, large.data<float>()[i]);
    group.barrier();
  });
}

}  // namespace
}  // namespace tutti::comm
