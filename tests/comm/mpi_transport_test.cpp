#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/comm/support/transport_ranks.h"
#include "tests/job/support/run_command.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

bool has_mpi() {
  for (const TransportInfo& info : known_transports()) {
    if (info.name == "mpi") return info.available;
  }
  return false;
}

CommandResult mpirun(int ranks, const std::string& program) {
  // More ranks than cores are fine here; root must say that it means it.
  const std::string flags = std::string(geteuid() == 0 ? "--allow-run-as-root " : "") + "--oversubscribe";
  return run_command(fmt::format("timeout 100 mpirun {} -n {} {}/{}", flags, ranks, TUTTI_BINARY_DIR, program));
}

TEST(MpiTransport, WithoutAnMpiItSaysWhy) {
  if (has_mpi()) return;
  try {
    make_transport("mpi", {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_SAYS(error.what(), "transport mpi is not part of this build");
  }
}

TEST(MpiTransport, RoundsAndMessagesBringTheRightBytes) {
  if (!has_mpi()) return;
  for (const int ranks : {1, 3}) {
    const CommandResult result = mpirun(ranks, "transport_program mpi rounds");
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST(MpiTransport, AnyMembersFormAGroupWithoutTheOthers) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "transport_program mpi groups");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, CanKeepsItsWord) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(2, "transport_program mpi can");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, AForkedChildIsRefusedAndDisturbsNobody) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(2, "transport_program mpi child");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, MismatchIsNamedOnAllRanks) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "transport_program mpi mismatch");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_SAYS(result.output, "rank 0: collective #1", "rank 1: collective #1", "rank 2: collective #1",
              "shapes differ");
}

TEST(MpiTransport, CallsThatOneRankRefusesAreErrorsOnAll) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "transport_program mpi refusals");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, NodesOfShardsHaveTheBitsOfOneTree) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "transport_program mpi nodes");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, EveryMismatchIsNamedOnAllRanks) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "transport_program mpi mismatches");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, GroupsThatDisagreeAreRefusedOnAllRanks) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "transport_program mpi world");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, CompiledCollectivesHaveTheBitsOfEagerOnes) {
  if (!has_mpi()) return;
  for (const int ranks : {2, 3}) {
    const CommandResult result = mpirun(ranks, "transport_program mpi compiled");
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST(MpiTransport, IdleAndWaitingRanksLeaveTheProcessorAlone) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(2, "transport_program mpi idle");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, ProgramThatUsesMpiItselfKeepsIt) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(3, "mpi_host_program");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(MpiTransport, MpiStartedForOneThreadIsRefused) {
  if (!has_mpi()) return;
  const CommandResult result = mpirun(2, "mpi_host_program single");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_SAYS(result.output, "the program has started MPI with MPI_THREAD_",
              "call MPI_Init_thread with MPI_THREAD_MULTIPLE");
}

}  // namespace
}  // namespace tutti::comm
