#include "tutti/job/host/fd_passing.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tutti/job/errors.h"
#include "tutti/job/host/fd_channel.h"
#include "tutti/job/store/hash_store.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

FdDeadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

int open_descriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// A memory file that holds one byte.
UniqueFd file_of(char byte) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(write(fd.get(), &byte, 1), 1);
  return fd;
}

char byte_in(const UniqueFd& fd) {
  char byte = 0;
  return pread(fd.get(), &byte, 1, 0) == 1 ? byte : '?';
}

void on_ranks(int size, const std::function<void(int)>& fn) {
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&fn, r] { fn(r); });
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FdPassing, GivesEveryRankEveryDescriptor) {
  const int before = open_descriptors();
  {
    HashStore store;
    on_ranks(5, [&](int rank) {
      const UniqueFd own = file_of(static_cast<char>('a' + rank));
      const auto fds = all_gather_fds(store, "k", rank, 5, own.get(), in(10s));
      ASSERT_EQ(fds.size(), 5u);
      for (int r = 0; r < 5; ++r) {
        EXPECT_EQ(byte_in(fds[r]), 'a' + r);
        EXPECT_NE(fcntl(fds[r].get(), F_GETFD) & FD_CLOEXEC, 0);
      }
      EXPECT_NE(fds[rank].get(), own.get());
    });
    EXPECT_EQ(store.num_keys(), 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(FdPassing, BroadcastsFromAnyRootUnderOneKeyAgainAndAgain) {
  HashStore store;
  on_ranks(4, [&](int rank) {
    for (int i = 0; i < 40; ++i) {
      const int root = i % 4;
      const UniqueFd own = file_of(static_cast<char>('A' + i % 20));
      const UniqueFd fd = broadcast_fd(store, "again", rank, 4, root, rank == root ? own.get() : -1, in(10s));
      EXPECT_EQ(byte_in(fd), 'A' + i % 20);
    }
  });
  EXPECT_EQ(store.num_keys(), 0);
}

TEST(FdPassing, TwoJobsWithOneKeyDoNotMeet) {
  HashStore first, second;
  on_ranks(4, [&](int thread) {
    const int job = thread / 2, rank = thread % 2;
    for (int i = 0; i < 20; ++i) {
      const UniqueFd own = file_of(static_cast<char>('a' + thread));
      const auto fds = all_gather_fds(job == 0 ? first : second, "k", rank, 2, own.get(), in(10s));
      EXPECT_EQ(byte_in(fds[1 - rank]), 'a' + 2 * job + 1 - rank);
    }
  });
}

TEST(FdPassing, ServesOneRankWithoutAStore) {
  HashStore store;
  const UniqueFd own = file_of('x');
  EXPECT_EQ(byte_in(broadcast_fd(store, "k", 0, 1, 0, own.get(), in(1s))), 'x');
  EXPECT_EQ(all_gather_fds(store, "k", 0, 1, own.get(), in(1s)).size(), 1u);
}

TEST(FdPassing, NamesRanksThatDoNotComeAndLeavesNothing) {
  const int before = open_descriptors();
  HashStore store;
  std::vector<std::string> texts(4);
  on_ranks(4, [&](int rank) {
    if (rank == 2) return;
    const UniqueFd own = file_of('x');
    texts[rank] = message_of([&] { all_gather_fds(store, "k", rank, 4, own.get(), in(100ms)); });
  });
  EXPECT_EQ(texts[0], "passing descriptors ('k', rank 0 of 4): ranks 2 did not come before the deadline");
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[3], texts[0]);
  EXPECT_EQ(store.num_keys(), 0);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(FdPassing, NamesARootThatDoesNotCome) {
  HashStore store;
  const std::string text = message_of([&] { broadcast_fd(store, "k", 1, 2, 0, -1, in(50ms)); });
  EXPECT_NE(text.find("rank 0 did not come before the deadline"), std::string::npos) << text;
}

TEST(FdPassing, NoticesARankThatDiedAfterItsHello) {
  HashStore store;
  std::string seen;
  on_ranks(2, [&](int rank) {
    if (rank == 0) {
      const auto start = std::chrono::steady_clock::now();
      seen = message_of([&] { broadcast_fd(store, "k", 0, 3, 0, 0, in(20s)); });
      EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
      return;
    }
    const std::string record = store.get("k");
    const std::string name = record.substr(0, record.find(' '));
    // A visitor that says hello and hangs up.
    UniqueFd connection;
    ASSERT_EQ(connect_to(name, in(1s), connection), 0);
    ASSERT_EQ(
        send_packet(connection.get(), {.kind = FdPacketKind::hello, .rank = 1, .size = 3, .root = 0}, name, {}, in(1s)),
        0);
  });
  EXPECT_NE(seen.find("rank 1 (pid "), std::string::npos) << seen;
  EXPECT_NE(seen.find("is gone: it died or gave up"), std::string::npos) << seen;
}

TEST(FdPassing, RefusesShortPacketsAndOtherVersions) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd a(ends[0]), b(ends[1]);
  ASSERT_EQ(send(a.get(), "short", 5, 0), 5);
  FdPacket packet;
  std::string problem;
  EXPECT_EQ(read_packet(b.get(), packet, problem), FdReadStatus::malformed);
  EXPECT_EQ(problem, "a packet of 5 bytes that this version does not know");
}

TEST(FdPassing, TellsAllWhenTheyDisagreeAboutTheGroup) {
  HashStore store;
  std::vector<std::string> texts(2);
  on_ranks(2, [&](int rank) {
    try {
      broadcast_fd(store, "k", rank, rank == 0 ? 2 : 3, 0, 0, in(5s));
    } catch (const UsageError& error) {
      texts[rank] = error.what();
    }
  });
  EXPECT_NE(texts[0].find("calls itself rank 1 of 3"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace tutti::comm
