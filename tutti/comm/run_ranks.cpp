#include "tutti/comm/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

struct FirstFailure {
  std::mutex mutex;
  std::exception_ptr exception;
  int rank = -1;

  void record(int failed_rank) {
    const std::lock_guard lock(mutex);
    if (exception) return;
    exception = std::current_exception();
    rank = failed_rank;
  }
};

void run_rank(ShmGroup& group, const std::function<void(ShmGroup&)>& fn, FirstFailure& failure) {
  try {
    fn(group);
  } catch (const std::exception& error) {
    failure.record(group.rank());  // before the abort: what the abort causes on other ranks is not the first
    group.abort(fmt::format("rank {} failed: {}", group.rank(), error.what()));
  } catch (...) {
    failure.record(group.rank());
    group.abort(fmt::format("rank {} failed", group.rank()));
  }
}

[[noreturn]] void rethrow_with_rank(const FirstFailure& failure) {
  const auto text = [&](const Error& error) { return fmt::format("rank {}: {}", failure.rank, error.what()); };
  try {
    std::rethrow_exception(failure.exception);
  } catch (const UsageError& error) {
    throw UsageError(text(error));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(text(error));
  } catch (const InternalError& error) {
    throw InternalError(text(error));
  }
}

}  // namespace

void run_ranks(int ranks, const std::function<void(ShmGroup&)>& fn, ShmGroupOptions options) {
  const auto segment = ShmSegment::create(ranks);
  FirstFailure failure;
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        ShmGroup group(segment, r, options);
        run_rank(group, fn, failure);
      });
    }
  }
  if (failure.exception) rethrow_with_rank(failure);
}

}  // namespace tutti::comm
