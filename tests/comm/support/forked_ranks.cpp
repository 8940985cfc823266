#include "tests/comm/support/forked_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <exception>

namespace tutti::comm {

std::vector<ForkedResult> run_forked(int ranks, const std::function<void(ShmGroup&)>& fn, int64_t chunk_bytes,
                                     ShmGroupOptions options) {
  const auto segment = ShmSegment::create(ranks, chunk_bytes);
  std::vector<int> pipes;
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    int fds[2];
    if (pipe(fds) != 0) std::terminate();
    const pid_t pid = fork();
    if (pid == 0) {
      std::string error;
      try {
        ShmGroup group(segment, r, options);
        fn(group);
      } catch (const std::exception& e) {
        error = e.what();
      }
      const ssize_t written = write(fds[1], error.data(), error.size());
      _exit(written == static_cast<ssize_t>(error.size()) ? 0 : 99);
    }
    segment->announce(r, pid);
    close(fds[1]);
    pipes.push_back(fds[0]);
    pids.push_back(pid);
  }
  std::vector<ForkedResult> results(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    char buffer[1024];
    for (ssize_t got; (got = read(pipes[r], buffer, sizeof buffer)) > 0;) results[r].error.append(buffer, got);
    close(pipes[r]);
    waitpid(pids[r], &results[r].wait_status, 0);
  }
  return results;
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
