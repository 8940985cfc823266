// A barrier that says who did not come. Rank 0 takes a message from each rank in turn and then tells them the outcome.
#include <algorithm>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/deadline.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/transport.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// Tags of the library's own messages lie beyond those of callers.
constexpr uint32_t kComeTag = (1u << 31) + 1, kGoTag = (1u << 31) + 2;

// What the messages may take beyond the limits that rank 0 keeps: it is the one to say who is missing.
constexpr std::chrono::milliseconds kMargin{2000};

std::string list(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ", ")); }

}  // namespace

void ProcessGroup::monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) {
  checks::timeout(fmt::format("monitored_barrier of group '{}'", name_), timeout);
  try {
    meet_monitored(std::min(timeout, kLongestWait), wait_all_ranks);
  } catch (const PeerError& error) {
    throw PeerError(fmt::format("monitored_barrier of group '{}': {}", name_, error.what()));
  }
}

void ProcessGroup::meet_monitored(std::chrono::milliseconds timeout, bool wait_all_ranks) {
  Backend& engine = backend(DeviceKind::cpu);
  // 0: all came; else 1 + the first missing rank.
  const Tensor token = Tensor::of<int64_t>({0});
  if (rank_ != 0) {
    engine.send(token, 0, kComeTag, {.timeout = timeout});
    const auto patience = (wait_all_ranks ? timeout * size() : timeout * 2) + kMargin;
    try {
      engine.recv(token, 0, kGoTag, {.timeout = patience});
    } catch (const TimeoutError&) {
      throw TimeoutError(fmt::format("monitored_barrier of group '{}': rank {} heard nothing from rank 0 within {} ms; see rank 0's message",
                                     name_, rank_, patience.count()));
    }
    const int64_t missing = token.item_int();
    if (missing != 0) {
      throw TimeoutError(fmt::format("monitored_barrier of group '{}': rank 0 says that rank {} did not come within {} ms; see rank 0's message",
                                     name_, missing - 1, timeout.count()));
    }
    return;
  }
  std::vector<Tensor> tokens;
  std::vector<Work> arrivals;
  for (int p = 1; p < size(); ++p) {
    tokens.push_back(Tensor::of<int64_t>({0}));
    arrivals.push_back(engine.recv(tokens.back(), p, kComeTag, {.async = true, .timeout = timeout * size() + kMargin}));
  }
  std::vector<int> missing, present;
  const auto until = deadline_after(timeout);
  for (int p = 1; p < size(); ++p) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const auto limit = wait_all_ranks ? timeout : std::max(left, std::chrono::milliseconds(0));
    const bool stop = !missing.empty() && !wait_all_ranks;
    if (!stop && arrivals[static_cast<size_t>(p - 1)].wait_for(limit)) present.push_back(p);
    else if (!stop) missing.push_back(p);
    else if (arrivals[static_cast<size_t>(p - 1)].is_done()) present.push_back(p);
  }
  const Tensor outcome = Tensor::of<int64_t>({missing.empty() ? 0 : missing[0] + 1});
  for (const int p : present) engine.send(outcome, p, kGoTag, {.async = true, .timeout = timeout}).wait_for(timeout);
  if (!missing.empty()) {
    throw TimeoutError(fmt::format("monitored_barrier of group '{}': rank{} {} did not come within {} ms", name_,
                                   missing.size() == 1 ? "" : "s", list(missing), timeout.count()));
  }
}

}  // namespace tutti::comm
