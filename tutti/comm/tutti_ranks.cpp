// The C interface over process groups: options become those of C++, exceptions become codes.
#include "tutti/comm/tutti_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tutti/comm/collectives_in_c.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/world_state.h"
#include "tutti/core/error.h"
#include "tutti/deploy/last_error.h"
#include "tutti/runtime/rank_context.h"

namespace comm = tutti::comm;
using comm::ProcessGroup;
using tutti::RankContext;

namespace {

// Groups that were opened together, in a context of their own: a process may open several, and its threads are bound to
// none.
struct Job {
  Job(comm::Rendezvous found, std::shared_ptr<comm::Store> its_store)
      : meeting(std::move(found)),
        store(std::move(its_store)),
        context({.rank = meeting.rank, .world_size = meeting.world_size, .threads = 0}) {}
  ~Job() {
    const RankContext::Scope scope(context);
    comm::destroy_process_group();
  }
  const comm::Rendezvous meeting;  // which keeps the server of the store, where this rank has it
  const std::shared_ptr<comm::Store> store;
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

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

// A rank that serves the store does so until its process ends: another one may open its next group while this one still
// closes the last. So the ranks of a process meet once, and its groups share the store, unless it is a file, which goes
// with its group.
class Meetings {
 public:
  static Meetings& instance() {
    static auto* all = new Meetings;  // what has threads must not end with the statics
    return *all;
  }

  comm::Rendezvous join(const std::string& url, const comm::RendezvousOptions& options) {
    if (url.starts_with("file:")) return comm::rendezvous(url, options);
    const std::lock_guard lock(mutex_);
    const std::string place = place_of(url, options);
    const auto found = places_.find(place);
    if (found != places_.end()) return found->second;
    return places_[place] = comm::rendezvous(url, options);
  }
  // The ranks meet anew when they open the next group.
  void forget(const comm::Rendezvous& meeting) {
    const std::lock_guard lock(mutex_);
    std::erase_if(places_, [&](const auto& each) { return each.second.store == meeting.store; });
  }

 private:
  static std::string place_of(const std::string& url, const comm::RendezvousOptions& options) {
    std::string place = fmt::format("{} {} {}", url, options.rank.value_or(-1), options.world_size.value_or(-1));
    for (const char* name :
         {"TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_STORE_PORT", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      place += fmt::format(" {}={}", name, text_of(std::getenv(name)));
    return place;
  }

  std::mutex mutex_;
  std::map<std::string, comm::Rendezvous> places_;
};

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
  const comm::Rendezvous meeting = Meetings::instance().join(options.url == nullptr ? "env://" : options.url, where);
  try {
    const auto job = std::make_shared<Job>(meeting, meeting.store->clone());
    const RankContext::Scope scope(job->context);
    init.store = job->store;
    init.rank = meeting.rank, init.world_size = meeting.world_size;
    return std::make_unique<tutti_ranks>(job, comm::init_process_group(init));
  } catch (const tutti::EnvironmentError&) {
    Meetings::instance().forget(meeting);
    throw;
  }
}

std::unique_ptr<tutti_ranks> split(const tutti_ranks& ranks, std::vector<int> members,
                                   const tutti_ranks_options& options) {
  const RankContext::Scope scope(ranks.job->context);
  const auto part = ranks.group->split(members, group_options(options, "", ranks.group->timeout()));
  return part == nullptr ? nullptr : std::make_unique<tutti_ranks>(ranks.job, part);
}

// Calls are made in the context of the group, whichever thread makes them.
tutti_code run_in_context(void* user, const tutti_collective_call* call) {
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
  if (ranks == nullptr) return;
  const std::shared_ptr<Job> job = ranks->job;  // ends last, with the groups that are left of it
  const RankContext::Scope scope(job->context);
  comm::WorldState& state = comm::WorldState::current();
  const std::lock_guard lock(state.mutex);
  if (state.world == ranks->group) state.world = nullptr;
  delete ranks;
}
