#include "tutti/comm/run_ranks.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/comm/group_registry.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/world_state.h"
#include "tutti/core/error.h"
#include "tutti/job/host/host_identity.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

struct FirstFailure {
  std::mutex mutex;
  std::exception_ptr exception;
  int rank = -1;
  bool is_of_a_peer = false;  // another rank has the reason

  void record(int failed_rank) {
    const std::lock_guard lock(mutex);
    if (exception && !is_of_a_peer) return;
    exception = std::current_exception();
    rank = failed_rank;
    try {
      throw;
    } catch (const StoppedByPeer&) {
      is_of_a_peer = true;
    } catch (...) {
      is_of_a_peer = false;
    }
  }
};

// The world of a rank that is a thread: its peers need no host and no environment to be found.
std::shared_ptr<ProcessGroup> join(const std::shared_ptr<Store>& store, const std::string& job, int rank, int ranks,
                                   const GroupOptions& options) {
  WorldState& state = WorldState::current();
  state.rendezvous = rendezvous(store, rank, ranks);
  state.ranks_are_threads = true;
  state.hosts.assign(static_cast<size_t>(ranks), host_identity());
  state.identities.assign(static_cast<size_t>(ranks), {getpid(), host_name()});
  std::vector<int> everyone;
  for (int r = 0; r < ranks; ++r) everyone.push_back(r);
  GroupOptions own = options;
  if (own.name.empty()) own.name = "0";
  state.world = make_group(state, job, rank, everyone, own);
  GroupRegistry::current().add(own.name, state.world);
  return state.world;
}

void run_rank(ProcessGroup& group, const std::function<void(ProcessGroup&)>& fn, FirstFailure& failure) {
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
  } catch (const PeerError& error) {
    throw PeerError(text(error));
  } catch (const TimeoutError& error) {
    throw TimeoutError(text(error));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(text(error));
  } catch (const InternalError& error) {
    throw InternalError(text(error));
  }
}

}  // namespace

void run_ranks(int ranks, const std::function<void(ProcessGroup&)>& fn, const GroupOptions& options) {
  TUTTI_CHECK(ranks >= 1, "run_ranks: {} ranks; expected 1 or more", ranks);
  static std::atomic<int64_t> jobs{0};
  const std::string job = fmt::format("threads/{}", ++jobs);
  const auto store = std::make_shared<HashStore>();
  FirstFailure failure;
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        RankContext context({.rank = r, .world_size = ranks, .threads = 0});
        const RankContext::Scope scope(context);
        std::shared_ptr<ProcessGroup> group;
        try {
          group = join(store, job, r, ranks, options);
        } catch (...) {
          failure.record(r);
          return;
        }
        run_rank(*group, fn, failure);
        destroy_process_group();
      });
    }
  }
  if (failure.exception) rethrow_with_rank(failure);
}

void run_fake_rank(int rank, int ranks, const std::function<void(ProcessGroup&)>& fn) {
  std::exception_ptr failure;
  std::jthread([&] {
    RankContext context({.rank = rank, .world_size = ranks, .threads = 0});
    const RankContext::Scope scope(context);
    try {
      fn(*join(std::make_shared<HashStore>(), "fake", rank, ranks, {.transport = "fake"}));
    } catch (...) {
      failure = std::current_exception();
    }
    destroy_process_group();
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti::comm
