#include "tests/symm/support/ranks.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <thread>

#include "tutti/job/distributed.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm::symm {
namespace {

std::string run_rank(const World& world, const RankFunction& fn) {
  RankContext context({.rank = world.rank, .world_size = world.size, .threads = 1});
  const RankContext::Scope scope(context);
  try {
    fn(world);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

SymmGroup World::group(const std::string& name, std::chrono::milliseconds timeout) const {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return subgroup(name, ranks, timeout);
}

SymmGroup World::subgroup(const std::string& name, const std::vector<int>& ranks,
                          std::chrono::milliseconds timeout) const {
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  if (own == ranks.end()) return SymmGroup();
  SymmGroup group(make_group_key(name, ranks, 0), static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                  store, ranks, timeout);
  group.select_backend(backend);
  return group;
}

std::vector<Outcome> run_threads(int size, const std::string& backend, const RankFunction& fn) {
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  HashStore table;
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        outcomes[r].error = run_rank({.rank = r, .size = size, .store = table.clone(), .backend = backend}, fn);
      });
    }
  }
  return outcomes;
}

std::vector<Outcome> run_processes(int size, const std::string& backend, const RankFunction& fn) {
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  std::vector<int> pipes;
  std::vector<pid_t> pids;
  // The server starts when all ranks are forked, and tells them its port: a copy of the process that is made while the
  // server's thread works holds whatever locks that thread held, for ever.
  int gate[2];
  if (pipe(gate) != 0) throw std::runtime_error("no pipe");
  for (int r = 0; r < size; ++r) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      close(gate[1]);
      int port = 0;
      if (read(gate[0], &port, sizeof port) != sizeof port) _exit(98);
      std::string error;
      try {
        const World world{
            .rank = r, .size = size, .store = connect_store({.port = port, .job_key = ""}), .backend = backend};
        error = run_rank(world, fn);
      } catch (const std::exception& e) {
        error = e.what();
      }
      if (error.empty() && testing::Test::HasFailure()) error = "an expectation failed";
      const ssize_t written = write(ends[1], error.data(), error.size());
      _exit(written == static_cast<ssize_t>(error.size()) ? 0 : 99);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    pids.push_back(pid);
  }
  close(gate[0]);
  const auto server = serve_store({.bind_address = "127.0.0.1", .job_key = ""});
  const std::vector<int> ports(static_cast<size_t>(size), server->port());
  const auto bytes = static_cast<ssize_t>(ports.size() * sizeof(int));
  if (write(gate[1], ports.data(), static_cast<size_t>(bytes)) != bytes) throw std::runtime_error("no pipe");
  close(gate[1]);
  for (size_t r = 0; r < outcomes.size(); ++r) {
    char buffer[1024];
    for (ssize_t got; (got = read(pipes[r], buffer, sizeof buffer)) > 0;) outcomes[r].error.append(buffer, got);
    close(pipes[r]);
    waitpid(pids[r], &outcomes[r].wait_status, 0);
  }
  return outcomes;
}

std::vector<const char*> live_backends() {
  if (why_not_distributed().empty()) return {"native", "threads"};
  return {"threads"};
}

void run_on(const std::string& backend, int size, const RankFunction& fn) {
  const auto outcomes = backend == "native" ? run_processes(size, backend, fn) : run_threads(size, backend, fn);
  for (size_t r = 0; r < outcomes.size(); ++r) {
    EXPECT_TRUE(outcomes[r].succeeded()) << "rank " << r << ": " << outcomes[r].error << " status "
                                         << outcomes[r].wait_status;
  }
}

int open_descriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int mapped_segments() {
  std::ifstream file("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("tutti-symm") != std::string::npos;
  return count;
}

std::string complaint_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace tutti::comm::symm
