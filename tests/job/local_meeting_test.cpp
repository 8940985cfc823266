// Ranks that mpirun starts find each other without a port, in one job or in several at a time.
#include "tutti/job/rendezvous/local_meeting.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <future>

#include "tests/job/support/run_command.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

LocalMeetingPlace place_of_this_test() {
  return {.name = fmt::format("tutti/test/{}", fresh_path("door")),
          .people = "the ranks that a test (pid 1) has started"};
}

TEST(LocalMeeting, EachRankIsGivenPortAndKey) {
  const LocalMeetingPlace place = place_of_this_test();
  const LocalDoor door(place, {.port = 4711, .job_key = "a key of sixteen"}, 4);
  for (const int rank : {1, 3, 2}) {
    const StoreTicket ticket = knock(place, rank, 4, milliseconds(5000));
    EXPECT_EQ(ticket.port, 4711);
    EXPECT_EQ(ticket.job_key, "a key of sixteen");
  }
}

TEST(LocalMeeting, RanksMayComeFirst) {
  const LocalMeetingPlace place = place_of_this_test();
  auto early = std::async(std::launch::async, [&] { return knock(place, 1, 2, milliseconds(10000)).port; });
  usleep(50'000);
  const LocalDoor door(place, {.port = 1, .job_key = ""}, 2);
  EXPECT_EQ(early.get(), 1);
}

// A rank that is ahead of rank 0 must not be given the store that rank 0 is about to leave.
TEST(LocalMeeting, ARankThatComesAgainWaitsForTheNextStore) {
  const LocalMeetingPlace place = place_of_this_test();
  auto first = std::make_unique<LocalDoor>(place, StoreTicket{.port = 1, .job_key = ""}, 3);
  EXPECT_EQ(knock(place, 1, 3, milliseconds(5000)).port, 1);
  auto again = std::async(std::launch::async, [&] { return knock(place, 1, 3, milliseconds(10000)).port; });
  EXPECT_EQ(again.wait_for(milliseconds(100)), std::future_status::timeout);
  first = nullptr;
  const LocalDoor second(place, {.port = 2, .job_key = ""}, 3);
  EXPECT_EQ(again.get(), 2);
}

TEST(LocalMeeting, RanksOfAnotherWorldSizeAreNotServed) {
  const LocalMeetingPlace place = place_of_this_test();
  const LocalDoor door(place, {.port = 1, .job_key = ""}, 2);
  EXPECT_THROW(knock(place, 1, 3, milliseconds(100)), StoreTimeout);
}

TEST(LocalMeeting, TheLauncherIsFoundBehindShells) {
  setenv("TUTTI_TEST_RANK", "7", 1);
  // The shells have the variable of their rank; this test's parent has not.
  EXPECT_EQ(find_launcher_process("TUTTI_TEST_RANK").pid, getppid());
  unsetenv("TUTTI_TEST_RANK");
}

bool has_mpirun() { return run_command("command -v mpirun").exit_code == 0; }

std::string mpirun(const std::string& command) {
  return fmt::format("timeout 100 mpirun {} --oversubscribe -x TUTTI_TEST_RANK_PROGRAM=sum {}",
                     geteuid() == 0 ? "--allow-run-as-root" : "", command);
}

const std::string kProgram = TUTTI_BINARY_DIR "/job_test";

TEST(LocalMeeting, RanksOfAnMpirunReduceOverSharedMemory) {
  if (!has_mpirun()) return;  // no mpirun, no ranks of an mpirun
  for (const int ranks : {1, 2, 5}) {
    const CommandResult result = run_command(mpirun(fmt::format("-n {} {}", ranks, kProgram)));
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST(LocalMeeting, ProgramsInTurnAndBehindShellsDoNotMix) {
  if (!has_mpirun()) return;
  const CommandResult result = run_command(mpirun(fmt::format("-n 3 sh -c '{0} && {0} && {0}; exit $?'", kProgram)));
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(LocalMeeting, JobsAtTheSameTimeDoNotMix) {
  if (!has_mpirun()) return;
  std::vector<std::future<CommandResult>> jobs;
  for (int job = 0; job < 3; ++job)
    jobs.push_back(std::async(std::launch::async, [] { return run_command(mpirun("-n 2 " + kProgram)); }));
  for (auto& job : jobs) {
    const CommandResult result = job.get();
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

}  // namespace
}  // namespace tutti::comm
