// The C interface over process groups: options become those of C++, exceptions become codes.
#include "tutti/comm/tutti_ranks.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/comm/collectives_in_c.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/world_state.h"
#include "tutti/core/error.h"
#include "tutti/deploy/last_error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/runtime/cancellation.h"
#include "tutti/runtime/fork_guard.h"
#include "tutti/runtime/rank_context.h"

namespace comm = tutti::comm;
using comm::ProcessGroup;
using tutti::RankContext;

namespace {

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

// The stores in which the ranks of this process meet others, by place. The groups that it opens at one place share the
// store. Any thread may call any function, and nothing waits with the mutex locked.
class Meetings {
 public:
  struct Place {
    int64_t users = 0;     // jobs that were begun here, and calls that begin one
    bool is_busy = false;  // a thread looks for the store, or ends it
    std::optional<comm::Rendezvous> meeting;
  };

  // Never destroyed: what has threads must not end with the statics. A fork()ed child has its own, because a thread of
  // its parent may have locked the mutex.
  static Meetings& instance() {
    static std::atomic<Meetings*> of_process{nullptr};
    Meetings* all = of_process.load();
    while (all == nullptr || all->process_.is_in_child()) {
      auto made = std::make_unique<Meetings>();
      if (of_process.compare_exchange_strong(all, made.get())) all = made.release();
    }
    return *all;
  }

  // The place is left when the last copy of the pointer goes.
  std::shared_ptr<Place> enter(const std::string& url, const comm::RendezvousOptions& options) {
    std::unique_lock lock(mutex_);
    const auto at = places_.try_emplace(name_of(url, options)).first;
    ++at->second.users;
    lock.unlock();
    return {&at->second, [this, at](Place*) { leave(at); }};
  }

  // One thread looks for the store. Others that need the same one wait for it, each until its own deadline, and look
  // themselves where it has failed.
  comm::Rendezvous meet(Place& place, const std::string& url, comm::RendezvousOptions options) {
    const auto deadline = comm::deadline_after(options.timeout);
    std::unique_lock lock(mutex_);
    const bool is_free = changed_.wait_until(lock, deadline, [&] { return !place.is_busy; });
    if (!is_free) {
      throw comm::StoreTimeout(fmt::format("store of '{}': another thread of this process has looked for it for {} ms",
                                           url, options.timeout.count()));
    }
    if (place.meeting) return *place.meeting;
    place.is_busy = true;
    lock.unlock();
    options.timeout = time_left(deadline);
    std::optional<comm::Rendezvous> found;
    std::exception_ptr failure;
    try {
      found = comm::rendezvous(url, options);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    place.is_busy = false;
    place.meeting = found;
    changed_.notify_all();
    if (failure) std::rethrow_exception(failure);
    return *found;
  }

  // Nobody answers at the address of this store: the next group looks for another one.
  void forget(Place& place, const comm::Rendezvous& lost) {
    const std::lock_guard lock(mutex_);
    if (place.meeting && place.meeting->store == lost.store && lost.server == nullptr) place.meeting.reset();
  }

  static std::chrono::milliseconds time_left(std::chrono::steady_clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

 private:
  using Places = std::map<std::string, Place>;

  static std::string name_of(const std::string& url, const comm::RendezvousOptions& options) {
    std::string name = fmt::format("{} {} {}", url, options.rank.value_or(-1), options.world_size.value_or(-1));
    for (const char* variable :
         {"TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_STORE_PORT", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      name += fmt::format(" {}={}", variable, text_of(std::getenv(variable)));
    return name;
  }

  // A rank that serves the store does so until its process ends: another one may open its next group while this one
  // still closes the last. A store that was found by the variables of a launcher may be found once only.
  static bool stays(const std::string& name, const comm::Rendezvous& meeting) {
    return meeting.world_size > 1 && (meeting.server != nullptr || !name.starts_with("tcp:"));
  }

  void leave(Places::iterator at) {
    std::unique_lock lock(mutex_);
    Place& place = at->second;
    if (--place.users > 0 || place.is_busy) return;  // where it is ended, that thread erases it
    if (place.meeting) {
      if (stays(at->first, *place.meeting)) return;
      place.is_busy = true;
      std::optional<comm::Rendezvous> ended = std::exchange(place.meeting, std::nullopt);
      lock.unlock();
      ended.reset();  // waits for the thread of the server
      lock.lock();
      place.is_busy = false;
      changed_.notify_all();
    }
    if (place.users == 0) places_.erase(at);
  }

  const tutti::ForkGuard process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Places places_;
};

// What a rank has when it has found the store.
struct Seat {
  std::shared_ptr<Meetings::Place> place;  // none where the store is a file, which goes with its groups
  std::shared_ptr<comm::Store> store;
  int rank, world_size;
};

Seat take_seat(const std::string& url, const comm::RendezvousOptions& options) {
  if (url.starts_with("file:")) {
    const comm::Rendezvous found = comm::rendezvous(url, options);
    return {nullptr, found.store, found.rank, found.world_size};
  }
  const auto deadline = comm::deadline_after(options.timeout);
  Meetings& meetings = Meetings::instance();
  const auto place = meetings.enter(url, options);
  const comm::Rendezvous found = meetings.meet(*place, url, options);
  try {
    const auto store = dynamic_cast<const comm::TcpStore&>(*found.store).clone(Meetings::time_left(deadline));
    store->set_timeout(options.timeout);
    return {place, store, found.rank, found.world_size};
  } catch (const tutti::EnvironmentError&) {
    meetings.forget(*place, found);
    throw;
  }
}

// Groups that were opened together, in a context of their own: a process may open several, and its threads are bound to
// none.
struct Job {
  explicit Job(Seat its_seat)
      : seat(std::move(its_seat)), context({.rank = seat.rank, .world_size = seat.world_size, .threads = 0}) {}
  ~Job() {
    const RankContext::Scope scope(context);
    comm::destroy_process_group();
  }
  const tutti::ForkGuard process;
  const Seat seat;
  RankContext context;
};

}  // namespace

struct tutti_ranks {
  tutti_ranks(std::shared_ptr<Job> its_job, const std::shared_ptr<ProcessGroup>& its_group)
      : job(std::move(its_job)),
        group(its_group),
        transport(group->backend(tutti::DeviceKind::cpu).name()),
        collectives(group) {}
  const std::shared_ptr<Job> job;
  const std::shared_ptr<ProcessGroup> group;
  const std::string transport;
  const comm::CollectivesInC collectives;
};

namespace {

tutti::deploy::LastError& last_error() {
  thread_local tutti::deploy::LastError last;
  return last;
}

template <class Fn>
tutti_code guarded(Fn fn) noexcept {
  const tutti::CancellationOff until_return;
  try {
    fn();
    return TUTTI_OK;
  } catch (...) {
    std::string text;
    const tutti_code code = comm::code_of_exception(text);
    return last_error().keep(code, text.c_str());
  }
}

void refuse_null(const void* pointer, const char* what) { TUTTI_CHECK(pointer != nullptr, "{} is NULL", what); }

// What this library knows of the caller's struct, which may be an older or a newer one.
template <class Struct>
Struct known_part(const Struct* given, const char* what) {
  Struct known{};
  if (given == nullptr) return known;
  TUTTI_CHECK(given->struct_size >= sizeof(size_t), "{0}->struct_size is {1}; set it to sizeof *{0}", what,
              given->struct_size);
  std::memcpy(&known, given, std::min(given->struct_size, sizeof known));
  return known;
}

comm::GroupOptions group_options(const tutti_ranks_options& options, const std::string& name,
                                 std::chrono::milliseconds timeout) {
  comm::GroupOptions made{.name = options.name == nullptr ? name : options.name,
                          .transport = text_of(options.transport),
                          .timeout = timeout};
  if (options.timeout_ms != 0) made.timeout = std::chrono::milliseconds(options.timeout_ms);
  return made;
}

std::unique_ptr<tutti_ranks> open(const tutti_ranks_options& options) {
  TUTTI_CHECK(options.ranks != 0 || options.rank == 0,
              "options->rank is {} and options->ranks 0; set both, or neither where the launcher tells them",
              options.rank);
  TUTTI_CHECK(options.timeout_ms >= 0, "options->timeout_ms is {}; expected a time, or 0 for 600000",
              options.timeout_ms);
  comm::InitOptions init{.dump_signal = false};
  init.group = group_options(options, "0", init.group.timeout);
  init.group.description = "all ranks";
  comm::RendezvousOptions where{.timeout = init.group.timeout};
  if (options.ranks != 0) where.rank = options.rank, where.world_size = options.ranks;
  const auto job = std::make_shared<Job>(take_seat(options.url == nullptr ? "env://" : options.url, where));
  const RankContext::Scope scope(job->context);
  init.store = job->seat.store;
  init.rank = job->seat.rank, init.world_size = job->seat.world_size;
  return std::make_unique<tutti_ranks>(job, comm::init_process_group(init));
}

std::unique_ptr<tutti_ranks> split(const tutti_ranks& ranks, std::vector<int> members,
                                   const tutti_ranks_options& options) {
  const RankContext::Scope scope(ranks.job->context);
  const auto part = ranks.group->split(members, group_options(options, "", ranks.group->timeout()));
  return part == nullptr ? nullptr : std::make_unique<tutti_ranks>(ranks.job, part);
}

// Calls are made in the context of the group, whichever thread makes them.
tutti_code run_in_context(void* user, const tutti_collective_call* call) noexcept {
  if (user == nullptr) return TUTTI_USAGE;
  const tutti::CancellationOff until_return;
  const auto& ranks = *static_cast<const tutti_ranks*>(user);
  const RankContext::Scope scope(ranks.job->context);
  return ranks.collectives.table().run(ranks.collectives.table().user, call);
}

}  // namespace

int32_t tutti_ranks_version(void) { return TUTTI_RANKS_VERSION; }

const tutti_error* tutti_ranks_last_error(void) { return last_error().get(); }

tutti_code tutti_ranks_open(const tutti_ranks_options* options, tutti_ranks** ranks) {
  return guarded([&] {
    refuse_null(ranks, "ranks");
    *ranks = nullptr;
    *ranks = open(known_part(options, "options")).release();
  });
}

tutti_code tutti_ranks_split(tutti_ranks* ranks, const int32_t* members, int32_t num_members,
                             const tutti_ranks_options* options, tutti_ranks** part) {
  return guarded([&] {
    refuse_null(ranks, "ranks");
    refuse_null(part, "part");
    *part = nullptr;
    TUTTI_CHECK(num_members >= 0, "num_members is {}; expected 0 or more", num_members);
    if (num_members > 0) refuse_null(members, "members");
    *part = split(*ranks, {members, members + num_members}, known_part(options, "options")).release();
  });
}

tutti_code tutti_ranks_describe(const tutti_ranks* ranks, tutti_ranks_info* info) {
  return guarded([&] {
    refuse_null(ranks, "ranks");
    refuse_null(info, "info");
    const size_t size = std::min(info->struct_size, sizeof *info);
    TUTTI_CHECK(size >= sizeof(size_t), "info->struct_size is {}; set it to sizeof *info", size);
    const tutti_ranks_info known{info->struct_size, ranks->group->rank(), ranks->group->size(),
                                 ranks->group->name().c_str(), ranks->transport.c_str()};
    std::memcpy(info, &known, size);
  });
}

tutti_code tutti_ranks_collectives(tutti_ranks* ranks, tutti_collectives* table) {
  return guarded([&] {
    refuse_null(ranks, "ranks");
    refuse_null(table, "table");
    *table = ranks->collectives.table();
    table->user = ranks;
    table->run = run_in_context;
  });
}

tutti_code tutti_ranks_barrier(tutti_ranks* ranks) {
  return guarded([&] {
    refuse_null(ranks, "ranks");
    const RankContext::Scope scope(ranks->job->context);
    ranks->group->barrier();
  });
}

void tutti_ranks_close(tutti_ranks* ranks) {
  if (ranks == nullptr || ranks->job->process.is_in_child()) return;
  const tutti::CancellationOff until_return;
  const std::shared_ptr<Job> job = ranks->job;  // ends last, with the groups that are left of it
  const RankContext::Scope scope(job->context);
  comm::WorldState& state = comm::WorldState::current();
  const std::lock_guard lock(state.mutex);
  if (state.world == ranks->group) state.world = nullptr;
  delete ranks;
}
