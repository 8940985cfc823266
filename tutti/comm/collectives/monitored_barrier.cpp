// A barrier that says who did not come.
//
// 1. Every rank sends rank 0 the number of its barrier.
// 2. Rank 0 takes these messages until its deadline.
// 3. It tells all ranks the outcome, also those that did not come: they hear of it when they do.
// A message of an earlier barrier, which failed, is recognized by its number and dropped.
#include <fmt/format.h>

#include <algorithm>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/transport.h"
#include "tutti/core/error.h"
#include "tutti/job/deadline.h"

namespace tutti::comm {
namespace {

// Tags of the library's own messages lie beyond those of callers.
constexpr uint32_t kComeTag = (1u << 31) + 1, kGoTag = (1u << 31) + 2;

// Rank 0 is the one to say who is missing: the others give its word so much longer than the deadline to arrive.
std::chrono::milliseconds grace(std::chrono::milliseconds timeout) {
  return std::max(timeout / 20, std::chrono::milliseconds(25));
}

// A message: the number of the barrier, and from rank 0 the first rank that did not come, or -1.
Tensor token(int64_t number, int64_t first_missing = -1) { return Tensor::of<int64_t>({number, first_missing}); }
// The number that came into token(0), which is as it was when the transport moves nothing: fake plans for peers that
// all come.
int64_t number_in(const Tensor& t, int64_t expected) {
  return t.data<int64_t>()[0] == 0 ? expected : t.data<int64_t>()[0];
}

std::chrono::milliseconds left_until(Clock::time_point deadline) {
  return std::max(std::chrono::milliseconds(1), std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
}

}  // namespace

void ProcessGroup::monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) {
  checks::timeout(fmt::format("monitored_barrier of group '{}'", name_), timeout);
  const std::lock_guard lock(monitored_mutex_);
  const int64_t number = ++monitored_.made;
  const auto title = [&] { return fmt::format("monitored_barrier #{} of group '{}'", number, name_); };
  try {
    if (rank_ == 0) watch_arrivals(number, std::min(timeout, kLongestWait), wait_all_ranks);
    else arrive_monitored(number, std::min(timeout, kLongestWait));
  } catch (const PeerError& error) {
    throw PeerError(fmt::format("{}: {}", title(), error.what()));
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("{}: {}", title(), error.what()));
  }
}

void ProcessGroup::arrive_monitored(int64_t number, std::chrono::milliseconds timeout) {
  Backend& engine = backend(DeviceKind::cpu);
  const auto deadline = deadline_after(timeout + grace(timeout));
  engine.send(token(number), 0, kComeTag, {.timeout = timeout});
  while (monitored_.told < number) {
    const Tensor outcome = token(0);
    engine.recv(outcome, 0, kGoTag, {.timeout = left_until(deadline)});
    monitored_.told = number_in(outcome, number);
    monitored_.first_missing = outcome.data<int64_t>()[1];
  }
  if (monitored_.told > number) throw TimeoutError(fmt::format("{} has given it up", engine.describe_rank(0)));
  if (monitored_.first_missing < 0) return;
  const int missing = static_cast<int>(monitored_.first_missing);
  throw TimeoutError(fmt::format("{} says that {} did not come in time; see its message", engine.describe_rank(0),
                                 engine.describe_rank(missing)));
}

void ProcessGroup::watch_arrivals(int64_t number, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  Backend& engine = backend(DeviceKind::cpu);
  std::vector<int64_t>& reached = monitored_.reached;
  reached.resize(static_cast<size_t>(size()), 0);
  const auto deadline = deadline_after(timeout);
  std::vector<std::string> missing;
  int64_t first_missing = -1;
  std::vector<Tensor> tokens(reached.size());
  std::vector<Work> arrivals(reached.size());
  const auto expect = [&](size_t p) {
    tokens[p] = token(0);
    arrivals[p] =
        engine.recv(tokens[p], static_cast<int>(p), kComeTag, {.async = true, .timeout = left_until(deadline)});
  };
  for (size_t p = 1; p < reached.size(); ++p) {
    if (reached[p] < number) expect(p);
  }
  for (size_t p = 1; p < reached.size(); ++p) {
    try {
      while (reached[p] < number) {
        arrivals[p].wait();
        reached[p] = std::max(reached[p], number_in(tokens[p], number));
        if (reached[p] < number) expect(p);
      }
    } catch (const TimeoutError&) {
      if (first_missing < 0) first_missing = static_cast<int64_t>(p);
      missing.push_back(engine.describe_rank(static_cast<int>(p)));
    }
  }
  std::vector<Work> words;
  for (int p = 1; p < size(); ++p)
    words.push_back(engine.send(token(number, first_missing), p, kGoTag, {.async = true, .timeout = timeout}));
  // Who did not come may not have room for it; nobody waits for that.
  for (int p = 1; p < size(); ++p) {
    if (reached[static_cast<size_t>(p)] >= number) words[static_cast<size_t>(p - 1)].wait_for(grace(timeout));
  }
  if (missing.empty()) return;
  if (!wait_all_ranks) missing.resize(1);
  throw TimeoutError(fmt::format("{} did not come within {} ms", fmt::join(missing, ", "), timeout.count()));
}

}  // namespace tutti::comm

TUTTI_COLLECTIVE(monitored_barrier){.name = "monitored_barrier", .evenness = Evenness::pairwise};
