#include "tests/comm/support/forked_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>

#include "tutti/comm/groups.h"
#include "tutti/comm/shm/shm_transport.h"
#include "tutti/comm/transport_backend.h"
#include "tutti/core/error.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

namespace {

// A copy of the process has only the thread that forks; a lock that another one held at that moment stays held in it
// for ever. The kernel lists a thread for a moment after it was joined, so the count is given time to fall.
void expect_one_thread() {
  // ThreadSanitizer keeps a thread of its own.
#ifndef __SANITIZE_THREAD__
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const auto threads =
        std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
    if (threads == 1) return;
    TUTTI_CHECK(std::chrono::steady_clock::now() < deadline,
                "ranks are forked by a process of {} threads; start the others in ForkOptions::before_start", threads);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
#endif
}

}  // namespace

std::vector<ForkedResult> fork_processes(int count, const std::function<void(int)>& fn, const ForkOptions& options,
                                         const std::function<void(int, pid_t)>& started) {
  expect_one_thread();
  std::vector<int> pipes;
  std::vector<pid_t> pids;
  // Nobody begins before all have been started: a thread of this process that answers them might hold a lock at a fork.
  int gate[2];
  if (pipe(gate) != 0) std::terminate();
  for (int r = 0; r < count; ++r) {
    int fds[2];
    if (pipe(fds) != 0) std::terminate();
    const pid_t pid = fork();
    if (pid == 0) {
      std::string error;
      close(gate[1]);
      if (char end = 0; read(gate[0], &end, 1) != 0) _exit(98);
      alarm(static_cast<unsigned>(options.limit.count()));
      try {
        fn(r);
      } catch (const std::exception& e) {
        error = e.what();
      }
      const ssize_t written = write(fds[1], error.data(), error.size());
      _exit(written == static_cast<ssize_t>(error.size()) ? 0 : 99);
    }
    if (started) started(r, pid);
    close(fds[1]);
    pipes.push_back(fds[0]);
    pids.push_back(pid);
  }
  close(gate[0]);
  if (options.before_start) options.before_start();
  close(gate[1]);
  if (options.meanwhile) options.meanwhile(pids);
  std::vector<ForkedResult> results(static_cast<size_t>(count));
  for (size_t r = 0; r < results.size(); ++r) {
    char buffer[1024];
    for (ssize_t got; (got = read(pipes[r], buffer, sizeof buffer)) > 0;)
      results[r].error.append(buffer, static_cast<size_t>(got));
    close(pipes[r]);
    waitpid(pids[r], &results[r].wait_status, 0);
  }
  return results;
}

std::vector<ForkedResult> run_forked(int ranks, const std::function<void(ProcessGroup&)>& fn,
                                     const ForkOptions& options) {
  const auto segment = Segment::create(ranks, options.slot_bytes);
  const auto rank_main = [&](int rank) {
    std::vector<int> everyone;
    for (int q = 0; q < ranks; ++q) everyone.push_back(q);
    ProcessGroup group("0", "forked", rank, everyone, nullptr);
    auto transport = std::make_unique<ShmTransport>(segment, rank, ShmOptions{});
    group.set_backend(DeviceKind::cpu,
                      std::make_shared<TransportBackend>(std::move(transport), GroupLabel{"0"}, options.timeout));
    fn(group);
  };
  return fork_processes(ranks, rank_main, options, [&](int rank, pid_t pid) { segment->area(rank).pid.store(pid); });
}

std::vector<ForkedResult> run_world(int ranks, const std::function<void(ProcessGroup&)>& fn,
                                    const ForkOptions& options) {
  std::shared_ptr<TcpStoreServer> server;
  int ports[2];
  TUTTI_CHECK_ENV(pipe(ports) == 0, "no pipe for the port of the store");
  const UniqueFd reader(ports[0]), writer(ports[1]);
  ForkOptions own = options;
  own.before_start = [&] {
    server = serve_store({.bind_address = "127.0.0.1", .job_key = ""});
    const std::vector<int> port(static_cast<size_t>(ranks), server->port());
    TUTTI_CHECK_ENV(
        write(writer.get(), port.data(), port.size() * sizeof(int)) == static_cast<ssize_t>(port.size() * sizeof(int)),
        "no pipe");
    if (options.before_start) options.before_start();
  };
  const auto rank_main = [&](int rank) {
    if (options.transport == "hier") setenv("TUTTI_HOST_ID", std::to_string(rank * 2 / ranks).c_str(), 1);
    RankContext context({.rank = rank, .world_size = ranks, .threads = 1});
    const RankContext::Scope scope(context);
    int port = 0;
    TUTTI_CHECK_ENV(read(reader.get(), &port, sizeof port) == sizeof port, "no pipe");
    const auto store = connect_store({.port = port, .job_key = ""});
    const auto world =
        init_process_group({.store = store,
                            .rank = rank,
                            .world_size = ranks,
                            .group = {.name = "0", .transport = options.transport, .timeout = options.timeout}});
    fn(*world);
    destroy_process_group();
  };
  return fork_processes(ranks, rank_main, own);
}

std::vector<float> rank_values(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const float mantissa = 1.0f + static_cast<float>((i * 7919 + rank * 104729) % 1000003) / 1000003.0f;
    values[i] = std::ldexp((i + rank) % 2 ? mantissa : -mantissa, static_cast<int>((i * 13 + rank * 5) % 19) - 9);
  }
  return values;
}

static float tree(const std::vector<std::vector<float>>& all, int begin, int end, size_t i) {
  if (end - begin == 1) return all[begin][i];
  const int middle = begin + (end - begin + 1) / 2;
  const float left = tree(all, begin, middle, i);
  const float right = tree(all, middle, end, i);
  return left + right;
}

std::vector<float> serial_tree(int ranks, int64_t count) {
  std::vector<std::vector<float>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(rank_values(r, count));
  std::vector<float> sums(static_cast<size_t>(count));
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = tree(all, 0, ranks, i);
  return sums;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace tutti::comm
