#include "tutti/comm/groups.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/device_backends.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/comm/group_conflict.h"
#include "tutti/comm/group_meeting.h"
#include "tutti/comm/group_registry.h"
#include "tutti/comm/transport_backend.h"
#include "tutti/comm/transports.h"
#include "tutti/comm/world_state.h"
#include "tutti/core/error.h"
#include "tutti/diagnose/dump_signal.h"
#include "tutti/diagnose/finite_check.h"
#include "tutti/job/deadline.h"
#include "tutti/job/rendezvous/roll_call.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

std::string joined(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ",")); }

// "cpu:shm,cuda:nccl" -> by device kind; a name alone is that of host tensors.
std::map<DeviceKind, std::string> parse_transports(const std::string& text) {
  std::map<DeviceKind, std::string> by_kind;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t colon = part.find(':');
    const DeviceKind kind =
        colon == std::string::npos ? DeviceKind::cpu : device_from_string(part.substr(0, colon)).kind;
    const std::string name = part.substr(colon + 1);  // all of it when there is no colon
    TUTTI_CHECK(!name.empty() && by_kind.emplace(kind, name).second,
                "transport '{}': expected one name per device kind, such as 'cpu:shm,cuda:nccl'", text);
    begin = end + 1;
  }
  return by_kind;
}

std::string chosen_transport(const GroupOptions& options) {
  const char* chosen = std::getenv("TUTTI_TRANSPORT");
  return !options.transport.empty() || chosen == nullptr ? options.transport : chosen;
}

// A group whose members come from `parent` has the transport that was named for it.
GroupOptions inherited(const GroupOptions& options, const ProcessGroup& parent) {
  GroupOptions own = options;
  if (own.transport.empty()) own.transport = parent.named_transport;
  return own;
}

// A fake group has no other ranks that could be asked.
bool has_peers(const ProcessGroup& group) {
  return !group.can({.kind = CollectiveKind::barrier}) || group.backend(DeviceKind::cpu).name() != "fake";
}

std::string best_transport(const WorldState& state, const std::vector<int>& members) {
  if (state.ranks_are_threads) return "threads";
  std::set<std::string> hosts;
  for (const int rank : members) hosts.insert(state.hosts[static_cast<size_t>(rank)]);
  if (hosts.size() == 1) return "shm";
  return hosts.size() == members.size() ? "gloo" : "hier";
}

// Picks, of what is known of each world rank, what belongs to the members; the default where nothing is known.
template <class T>
std::vector<T> of_members(const std::vector<T>& by_world_rank, const std::vector<int>& members) {
  std::vector<T> own;
  for (const int rank : members) own.push_back(by_world_rank.empty() ? T{} : by_world_rank[static_cast<size_t>(rank)]);
  return own;
}

std::vector<PeerIdentity> identities_of(const WorldState& state, const std::vector<int>& world_ranks) {
  std::vector<PeerIdentity> own = of_members(state.identities, world_ranks);
  for (size_t i = 0; i < own.size(); ++i) own[i].world_rank = world_ranks[i];
  return own;
}

// "rank 3 (pid 4711 on host7)" of each, called `ranks`, which are the world's `world_ranks`.
std::vector<std::string> described(const WorldState& state, const std::vector<int>& ranks,
                                   const std::vector<int>& world_ranks) {
  std::vector<std::string> names;
  for (size_t i = 0; i < ranks.size(); ++i) names.push_back(state.describe_rank(ranks[i], world_ranks[i]));
  return names;
}

int ranks_on_my_host(const WorldState& state, int world_rank) {
  return static_cast<int>(
      std::count(state.hosts.begin(), state.hosts.end(), state.hosts[static_cast<size_t>(world_rank)]));
}

void check_members(const char* call, const std::vector<int>& ranks, int size) {
  TUTTI_CHECK(!ranks.empty(), "{}: the list of ranks is empty", call);
  std::set<int> seen;
  for (const int rank : ranks) {
    TUTTI_CHECK(rank >= 0 && rank < size, "{}: rank {} is out of range; legal: 0 to {}", call, rank, size - 1);
    TUTTI_CHECK(seen.insert(rank).second, "{}: rank {} is listed twice", call, rank);
  }
}

int position(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

std::shared_ptr<Backend> make_backend(const WorldState& state, DeviceKind kind, const std::string& transport,
                                      const GroupSeat& seat, const GroupOptions& options) {
  if (kind == DeviceKind::cuda) {
    TUTTI_CHECK(transport == "nccl", "transport '{}' for tensors on cuda; legal: nccl", transport);
    // One GPU per rank of a host, in their order.
    const int16_t index = static_cast<int16_t>(state.rendezvous.local_rank.value_or(0));
    return make_device_backend(transport, seat, {DeviceKind::cuda, index}, options.timeout);
  }
  TUTTI_CHECK(kind == DeviceKind::cpu, "transport '{}': there is none for tensors on {}", transport,
              to_string(Device{.kind = kind, .index = 0}));
  return std::make_shared<TransportBackend>(
      make_transport(transport, seat), GroupLabel{seat.name, options.description, seat.world_ranks}, options.timeout);
}

// For catch blocks: ranks that come to this world later hear at once that this rank has given it up, and the next ones
// of all ranks belong together again. Arguments that differ are found by the roll call.
void give_up(const Rendezvous& meeting, const std::string& key, const std::string& group) {
  std::string why;
  try {
    throw;
  } catch (const PeerError& error) {
    why = error.what();  // which names the rank that is to blame
  } catch (const EnvironmentError& error) {
    why = fmt::format("group '{}': rank {} has given up: {}", group, meeting.rank, error.what());
  } catch (...) {
    return;
  }
  try {
    meeting.store->compare_set(alarm_of(key), "", why);
  } catch (const Error&) {
    // The store is gone, and nobody comes any more.
  }
}

}  // namespace

std::vector<FarMember> far_members(const WorldState& state, const std::vector<int>& ranks,
                                   const std::vector<int>& world_ranks) {
  std::vector<FarMember> far;
  for (size_t i = 0; i < ranks.size() && !state.pids.empty(); ++i) {
    const auto r = static_cast<size_t>(world_ranks[i]);
    if (state.pids[r] == 0 && r < state.identities.size())
      far.push_back({state.describe_rank(ranks[i], world_ranks[i]), state.hosts[r], state.identities[r].pid});
  }
  return far;
}

WorldState& WorldState::current() { return RankContext::current().slot<WorldState>(); }

std::shared_ptr<ProcessGroup> make_group(WorldState& state, const std::string& key, int rank,
                                         const std::vector<int>& world_ranks, const GroupOptions& options) {
  const std::string name = options.name.empty() ? "ranks:" + joined(world_ranks) : options.name;
  checks::timeout(fmt::format("group '{}'", name), options.timeout);
  std::vector<int> group_ranks(world_ranks.size());
  std::iota(group_ranks.begin(), group_ranks.end(), 0);
  const GroupSeat seat{.name = name,
                       .key = key,
                       .rank = rank,
                       .size = static_cast<int>(world_ranks.size()),
                       .world_ranks = world_ranks,
                       .pids = of_members(state.pids, world_ranks),
                       .identities = identities_of(state, world_ranks),
                       .far = far_members(state, group_ranks, world_ranks),
                       .local_ranks = ranks_on_my_host(state, world_ranks[static_cast<size_t>(rank)]),
                       .store = state.rendezvous.store,
                       .deadline = deadline_after(options.timeout)};
  if (seat.store) MemberWatch::take_back_word(*seat.store);
  auto group = std::make_shared<ProcessGroup>(name, key, rank, world_ranks, state.rendezvous.store);
  group->description = options.description;
  group->named_transport = options.transport;
  group->set_check_nan(options.check_nan.value_or(checks_nan_by_default()));
  auto by_kind = parse_transports(chosen_transport(options));
  by_kind.try_emplace(DeviceKind::cpu, best_transport(state, world_ranks));
  const auto make_backends = [&] {
    for (const auto& [kind, transport] : by_kind)
      group->set_backend(kind, make_backend(state, kind, transport, seat, options));
  };
  if (!seat.store) {
    make_backends();
    return group;
  }
  try {
    MemberWatch(*seat.store, name, seat.pids, {}, seat.far).guard(make_backends);
  } catch (const PeerError& error) {
    MemberWatch::leave_word(*seat.store, error.what());
    throw;
  }
  return group;
}

// ---- the world ------------------------------------------------------------------------------------------------------

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  WorldState& state = WorldState::current();
  const std::lock_guard lock(state.mutex);
  TUTTI_CHECK(state.world == nullptr,
              "init_process_group: this rank has a world of {} ranks already; destroy_process_group() first",
              state.world ? state.world->size() : 0);
  if (options.store) {
    TUTTI_CHECK(options.rank && options.world_size, "init_process_group: a store needs rank and world_size beside it");
    state.rendezvous = rendezvous(options.store, *options.rank, *options.world_size);
  } else {
    state.rendezvous = rendezvous(
        options.url, {.rank = options.rank, .world_size = options.world_size, .timeout = options.group.timeout});
  }
  if (options.dump_signal) install_dump_signal();
  std::string key;
  try {
    Store& store = *state.rendezvous.store;
    const int rank = state.rendezvous.rank, size = state.rendezvous.world_size;
    // A job may end its world and begin another one with the same store.
    const int64_t ordinal = store.add(fmt::format("tutti/init/{}", rank), 1);
    key = fmt::format("tutti/world/{}", ordinal);
    RollCall present = call_roll(store, key, options.group.name, rank, size, options.group.timeout);
    state.hosts = std::move(present.hosts);
    state.pids = std::move(present.pids);
    state.identities = std::move(present.identities);
    std::vector<int> everyone;
    for (int r = 0; r < size; ++r) everyone.push_back(r);
    state.world = make_group(state, key, rank, everyone, options.group);
    GroupRegistry::current().add(state.world->name(), state.world);
  } catch (...) {
    if (!key.empty()) give_up(state.rendezvous, key, options.group.name);
    state.rendezvous = {};
    state.world = nullptr;
    throw;
  }
  return state.world;
}

std::shared_ptr<ProcessGroup> world() {
  WorldState& state = WorldState::current();
  const std::lock_guard lock(state.mutex);
  TUTTI_CHECK(state.world != nullptr, "this rank has no world; call init_process_group() first");
  return state.world;
}

bool has_world() {
  WorldState& state = WorldState::current();
  const std::lock_guard lock(state.mutex);
  return state.world != nullptr;
}

void destroy_process_group() {
  WorldState& state = WorldState::current();
  const std::lock_guard lock(state.mutex);
  functional::WorkRegistry::current().end();
  GroupRegistry::current().clear();
  state.world = nullptr;
  state.rendezvous = {};
  state.hosts.clear();
  state.pids.clear();
  state.identities.clear();
  state.ordinals.clear();
}

// ---- parts of it ----------------------------------------------------------------------------------------------------

std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& world_ranks, const GroupOptions& options) {
  const std::shared_ptr<ProcessGroup> all = world();
  check_members("new_group", world_ranks, all->size());
  const int rank = position(world_ranks, all->rank());
  TUTTI_CHECK(rank >= 0, "new_group: rank {} is not among the members {}; only members call", all->rank(),
              joined(world_ranks));
  checks::timeout("new_group", options.timeout);
  WorldState& state = WorldState::current();
  const std::lock_guard one_at_a_time(state.making);
  Store& store = *state.rendezvous.store;
  GroupConflicts conflicts(store, all->key(), all->rank(), state.ordinals);
  GroupOptions own = inherited(options, *all);
  std::string key;
  const std::vector<pid_t> pids = of_members(state.pids, world_ranks);
  const std::vector<FarMember> far = far_members(state, world_ranks, world_ranks);
  MemberWatch watch(store, own.name.empty() ? fmt::format("group:[{}]", joined(world_ranks)) : own.name, pids,
                    world_ranks, far);
  watch.guard([&] {
    const GroupInMaking& mine = conflicts.begin(world_ranks);
    key = conflicts.key(mine);
    if (own.name.empty()) own.name = fmt::format("group:{}:[{}]", mine.ordinal, joined(world_ranks));
    if (!has_peers(*all)) return;
    const MeetingSeat seat{.store = store,
                           .title = fmt::format("new_group of ranks [{}]", joined(world_ranks)),
                           .group = own.name,
                           .key = key,
                           .members = world_ranks,
                           .names = described(state, world_ranks, world_ranks),
                           .place = rank,
                           .pids = pids,
                           .far = far,
                           .timeout = own.timeout};
    const auto wishes = meet_members(seat, {.ranks = world_ranks, .name = own.name, .transport = chosen_transport(own)},
                                     [&] { conflicts.look(); });
    conflicts.end();
    leave_meeting(seat);
    for (size_t m = 1; m < wishes.size(); ++m) {
      const std::string terms = differing_terms(world_ranks[0], wishes[0], world_ranks[m], wishes[m]);
      TUTTI_CHECK(terms.empty(), "{}: {}", seat.title, terms);
    }
  });
  auto group = make_group(state, key, rank, world_ranks, own);
  GroupRegistry::current().add(own.name, group);
  return group;
}

std::shared_ptr<ProcessGroup> merge(const std::vector<int>& a, const std::vector<int>& b, const GroupOptions& options) {
  std::vector<int> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return new_group(both, options);
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(const std::vector<int>& ranks, const GroupOptions& options) {
  check_process();
  const std::string title = fmt::format("split of group '{}'", name_);
  checks::timeout(options.name.empty() ? title : fmt::format("group '{}'", options.name), options.timeout);
  const int64_t ordinal = splits_.fetch_add(1) + 1;
  GroupOptions own = inherited(options, *this);
  std::vector<GroupWish> wishes(static_cast<size_t>(size()));
  wishes[static_cast<size_t>(rank_)] = {.ranks = ranks, .name = options.name, .transport = chosen_transport(own)};
  if (has_peers(*this)) {
    TUTTI_CHECK(store_ != nullptr, "{}: its ranks have no store to meet in", title);
    std::vector<int> everyone(static_cast<size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const MeetingSeat seat{.store = *store_,
                           .title = title,
                           .group = fmt::format("{}:split:{}", name_, ordinal),
                           .key = fmt::format("{}/splits/{}", key_, ordinal),
                           .members = everyone,
                           .names = described(WorldState::current(), everyone, world_ranks_),
                           .place = rank_,
                           .pids = of_members(WorldState::current().pids, world_ranks_),
                           .far = far_members(WorldState::current(), everyone, world_ranks_),
                           .timeout = options.timeout};
    MemberWatch watch(*store_, seat.group, seat.pids, everyone, seat.far);
    watch.guard([&] {
      wishes = meet_members(seat, wishes[static_cast<size_t>(rank_)], [] {});
      leave_meeting(seat);
    });
  } else {
    for (const int rank : ranks) {
      if (rank >= 0 && rank < size()) wishes[static_cast<size_t>(rank)] = wishes[static_cast<size_t>(rank_)];
    }
  }
  const std::string wrong = why_no_split(wishes);
  TUTTI_CHECK(wrong.empty(), "{}: {}", title, wrong);
  if (ranks.empty()) return nullptr;
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(world_ranks_[static_cast<size_t>(rank)]);
  if (own.name.empty()) own.name = fmt::format("{}:split:{}:[{}]", name_, ordinal, joined(ranks));
  if (own.description.empty()) own.description = fmt::format("{}:split:{}", description, ordinal);
  const std::string key = fmt::format("{}/split/{}/{}", key_, ordinal, joined(ranks));
  auto group = make_group(WorldState::current(), key, position(ranks, rank_), members, own);
  GroupRegistry::current().add(own.name, group);
  return group;
}

std::vector<ProcessGroup*> ProcessGroup::lanes(size_t most) {
  check_process();
  TUTTI_CHECK(most >= 1, "lanes of group '{}': {}; expected at least 1", name_, most);
  if (const Health own = health(); !own.ok) throw PeerError(own.failure);
  std::vector<ProcessGroup*> all = {this};
  if (size() == 1 || cpu_ == nullptr || !cpu_->gains_by_lanes()) return all;
  for (size_t made = lanes_so_far().size(); made + 1 < most; ++made) {
    const size_t n = made + 1;
    std::shared_ptr<ProcessGroup> lane;
    if (lane_maker_) {
      lane = lane_maker_(*this, n);
    } else {
      const GroupOptions options{.name = fmt::format("{}:lane:{}", name_, n),
                                 .description = description,
                                 .transport = cpu_->name(),
                                 .timeout = timeout(),
                                 .check_nan = check_nan_.load()};
      lane = make_group(WorldState::current(), fmt::format("{}/lane/{}", key_, n), rank_, world_ranks_, options);
    }
    {
      const std::lock_guard lock(lanes_mutex_);
      lanes_.push_back(lane);
    }
    if (const Health own = health(); !own.ok) lane->abort(own.failure);  // by a thread that did not see it yet
  }
  for (const auto& lane : lanes_so_far())
    if (all.size() < most) all.push_back(lane.get());
  return all;
}

}  // namespace tutti::comm
