#include "tutti/diagnose/dump_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tutti/diagnose/flight_recorder.h"

namespace tutti::comm {
namespace {

using testing::TemporaryFolder;

std::atomic<int> own_handler_calls{0};

// A process in which SIGUSR1 has a fresh start: `body` runs there, its result is the exit status.
template <class Fn>
int in_child(Fn&& body) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool appears(const std::string& path) {
  for (int i = 0; i < 2000; ++i) {
    if (std::filesystem::exists(path)) return true;
    usleep(5000);
  }
  return false;
}

TEST(DumpSignal, WritesTheCallThatIsStuckWhileTheRankIsStuck) {
  TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              install_dump_signal();
              install_dump_signal();
              FlightRecorder recorder({.rank = 0, .world_size = 2, .prefix = folder / "d"});
              FlightGroup& group = recorder.add_group("g", "", {0, 1});
              recorder.begin(group, {.kind = CollectiveKind::barrier, .sequence = 4}, 0, 0);
              raise(SIGUSR1);  // this thread makes no further call of Tutti
              if (!appears(folder / "d0")) return 1;
              const FlightDump dump = read_flight_dump_file(folder / "d0");
              return dump.reason == "SIGUSR1" && dump.entries.back().call == "barrier()" ? 0 : 2;
            }),
            0);
}

TEST(DumpSignal, AllRanksOfAProcessAreWritten) {
  TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              install_dump_signal();
              FlightRecorder a({.rank = 0, .world_size = 2, .prefix = folder / "d"});
              FlightRecorder b({.rank = 1, .world_size = 2, .prefix = folder / "d"});
              kill(getpid(), SIGUSR1);
              return appears(folder / "d0") && appears(folder / "d1") ? 0 : 1;
            }),
            0);
}

TEST(DumpSignal, TheProgramsOwnHandlerIsCalledToo) {
  TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              struct sigaction action{};
              action.sa_handler = [](int) { ++own_handler_calls; };
              sigaction(SIGUSR1, &action, nullptr);
              install_dump_signal();
              FlightRecorder recorder({.rank = 0, .world_size = 1, .prefix = folder / "d"});
              raise(SIGUSR1);
              return own_handler_calls == 1 && appears(folder / "d0") ? 0 : 1;
            }),
            0);
}

TEST(DumpSignal, AForkedChildAnswersForItself) {
  TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              install_dump_signal();
              return in_child([&] {
                raise(SIGUSR1);  // nobody listens yet: the parent must not answer
                install_dump_signal();
                FlightRecorder recorder({.rank = 5, .world_size = 6, .prefix = folder / "d"});
                raise(SIGUSR1);
                return appears(folder / "d5") ? 0 : 1;
              });
            }),
            0);
}

}  // namespace
}  // namespace tutti::comm
