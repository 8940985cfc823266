#include "tutti/train/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/core/error.h"

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
  { const StopSignals signals; }
  struct sigaction now {};
  sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(StopSignals, CanBeInstalledOnlyOnceAtATime) {
  const StopSignals signals;
  EXPECT_THROW(StopSignals(), UsageError);
}

}  // namespace
}  // namespace tutti::train
