#include "tutti/runtime/held_signal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

bool is_blocked(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

TEST(HeldSignal, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  close(ends[1]);
  int error = 0;
  {
    const HeldSignal held(SIGPIPE);
    EXPECT_LT(write(ends[0], "x", 1), 0);
    error = errno;
  }
  EXPECT_EQ(error, EPIPE);
  EXPECT_FALSE(is_pending(SIGPIPE) || is_blocked(SIGPIPE));
  close(ends[0]);
}

TEST(HeldSignal, AFileThatMayNotGrowIsAnErrorAndNoSignal) {
  const testing::TemporaryFolder folder;
  const int file = open((folder / "file").c_str(), O_WRONLY | O_CREAT, 0600);
  const testing::FileSizeLimit limit(0);
  {
    const HeldSignal held(SIGXFSZ);
    EXPECT_LT(write(file, "x", 1), 0);
  }
  EXPECT_EQ(errno, EFBIG) << "the write's error outlives the guard";
  EXPECT_FALSE(is_pending(SIGXFSZ) || is_blocked(SIGXFSZ));
  close(file);
}

TEST(HeldSignal, OneThatSomebodyElseSentStaysPending) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  raise(SIGXFSZ);
  {
    const HeldSignal held(SIGXFSZ);
  }
  EXPECT_TRUE(is_pending(SIGXFSZ) && is_blocked(SIGXFSZ));
  const timespec at_once{};
  sigtimedwait(&set, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace tutti
