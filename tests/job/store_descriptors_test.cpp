// The server of a store leaves descriptors to the process it is part of, which needs them for pipes of ranks, logs and
// the like.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tutti/job/store/socket.h"
#include "tutti/job/store/store_rules.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kKey = "0123456789abcdef0123456789abcdef";
constexpr int kLimit = 300, kReserved = 64;  // what the server process may have, and what it keeps

// A server in a process of its own with few descriptors; its clients' ends are in the test's process.
class FewDescriptors {
 public:
  FewDescriptors() {
    int question[2], answer[2];
    EXPECT_EQ(pipe(question), 0);
    EXPECT_EQ(pipe(answer), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(question[1]);
      close(answer[0]);
      serve(question[0], answer[1]);
    }
    close(question[0]);
    close(answer[1]);
    question_ = UniqueFd(question[1]);
    answer_ = UniqueFd(answer[0]);
    EXPECT_EQ(read(answer_.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
  }
  ~FewDescriptors() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // How many files that process can open besides.
  int free_descriptors() const {
    int count = -1;
    EXPECT_EQ(write(question_.get(), "?", 1), 1);
    EXPECT_EQ(read(answer_.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
    return count;
  }
  int port = 0;

 private:
  [[noreturn]] static void serve(int question, int answer) {
    for (int fd = 3; fd < 1024; ++fd) {
      if (fd != question && fd != answer) close(fd);
    }
    const rlimit limit{.rlim_cur = kLimit, .rlim_max = kLimit};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    const TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = kKey});
    const int port = server.port();
    if (write(answer, &port, sizeof port) != static_cast<ssize_t>(sizeof port)) _exit(3);
    char byte;
    while (read(question, &byte, 1) == 1) {
      std::vector<UniqueFd> files;
      while (files.empty() || files.back()) files.push_back(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
      const int count = static_cast<int>(files.size()) - 1;
      files.clear();
      if (write(answer, &count, sizeof count) != static_cast<ssize_t>(sizeof count)) _exit(4);
    }
    _exit(0);
  }
  pid_t pid_ = -1;
  UniqueFd question_, answer_;
};

// The oldest stranger leaves, so that those who know the key come in at once.
TEST(StoreDescriptors, StrangersDoNotTakeTheReserve) {
  const FewDescriptors server;
  std::vector<UniqueFd> strangers;
  std::string error;
  for (int i = 0; i < 2 * kLimit; ++i)
    strangers.push_back(try_connect("127.0.0.1", server.port, StoreDeadline(seconds(20)), error));
  TcpStore store({.port = server.port, .timeout = seconds(20), .job_key = kKey});
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
  EXPECT_GE(server.free_descriptors(), kReserved);
}

// Clients who have proved the key stay, and further ones wait outside until one leaves.
TEST(StoreDescriptors, ClientsWithTheKeyDoNotTakeTheReserve) {
  const FewDescriptors server;
  std::vector<std::unique_ptr<TcpStore>> clients;
  const auto connect = [&](milliseconds timeout) {
    clients.push_back(
        std::make_unique<TcpStore>(TcpStoreOptions{.port = server.port, .timeout = timeout, .job_key = kKey}));
  };
  // A busy machine may keep the first ones waiting, too.
  for (int refused = 0; refused < 3;) {
    ASSERT_LT(clients.size(), static_cast<size_t>(kLimit)) << "all of them were served";
    try {
      connect(seconds(1));
      refused = 0;
    } catch (const StoreTimeout&) {
      ++refused;
    }
  }
  EXPECT_GT(clients.size(), static_cast<size_t>(kLimit) / 2);
  EXPECT_GE(server.free_descriptors(), kReserved);
  for (const auto& client : clients) client->set("k", "v");
  clients.pop_back();
  connect(seconds(20));
  EXPECT_EQ(clients.back()->get("k"), "v");
}

}  // namespace
}  // namespace tutti::comm
