#include "tutti/train/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tutti::train {
namespace {

// Exit status of a child that runs `body` under StopSignals.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    StopSignals signals;
    _exit(body(signals));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(StopSignals, RequestNothingBeforeASignal) {
  const StopSignals signals;
  EXPECT_FALSE(signals.requested());
}

TEST(StopSignals, TheFirstOneAsksToStop) {
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EQ(status_of_child([&](StopSignals& signals) {
                raise(number);
                return signals.requested() ? 7 : 8;
              }),
              7);
  }
}

TEST(StopSignals, TheSecondOneQuitsWith130) {
  EXPECT_EQ(status_of_child([](StopSignals&) {
              raise(SIGINT);
              raise(SIGTERM);
              return 7;
            }),
            130);
}

TEST(StopSignals, LeaveTheOldHandlersBehind) {
  {
    const StopSignals signals;
  }
  struct sigaction now{};
  sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

// Ranks that are threads of one process see the same signal, whoever of them came first or went first.
TEST(StopSignals, ManyObjectsSeeTheSameSignal) {
  EXPECT_EQ(status_of_child([](StopSignals& first) {
              const StopSignals second;
              {
                const StopSignals third;
              }
              raise(SIGTERM);
              const StopSignals late;
              return first.requested() && second.requested() && late.requested() ? 7 : 8;
            }),
            7);
}

}  // namespace
}  // namespace tutti::train
