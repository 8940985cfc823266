// A group of those that are left. The old group need not work any more: all is said through the store.
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/group_registry.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/transport.h"
#include "tutti/comm/world_state.h"
#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/host/member_watch.h"

namespace tutti::comm {
namespace {

std::string list(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ",")); }

// Returns when all survivors have said that they leave out the same ranks.
void agree(Store& store, const std::string& title, const std::string& key, int rank, const std::vector<int>& survivors,
           const std::string& failed, MemberWatch& watch, std::chrono::milliseconds timeout,
           const std::function<std::string(int)>& describe_rank) {
  const auto key_of = [&](int r) { return fmt::format("{}/{}", key, r); };
  store.set(key_of(rank), failed);
  Store::Keys keys;
  for (const int r : survivors) keys.push_back(key_of(r));
  const auto deadline = deadline_after(timeout);
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    bool all = true;
    try {
      store.wait(keys, std::clamp(left, std::chrono::milliseconds(0), kLookAround));
    } catch (const StoreTimeout&) {
      all = false;
      watch.look_around();
    }
    // Also while some are missing: they may have made out already that the lists differ.
    std::vector<int> missing;
    for (const int r : survivors) {
      if (!all && !store.check({key_of(r)})) {
        missing.push_back(r);
        continue;
      }
      const std::string said = store.get(key_of(r));
      TUTTI_CHECK(said == failed,
                  "{}: rank {} leaves out [{}], rank {} leaves out [{}]; give the same list on all survivors", title,
                  rank, failed, r, said);
    }
    if (missing.empty()) return;
    if (left > kLookAround) continue;
    std::vector<std::string> names;
    for (const int r : missing) names.push_back(describe_rank(r));
    throw TimeoutError(
        fmt::format("{}: {} did not call it within {} ms", title, fmt::join(names, ", "), timeout.count()));
  }
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::shrink(std::vector<int> failed_ranks, const GroupOptions& options) {
  check_process();
  const std::string title = fmt::format("shrink of group '{}'", name_);
  checks::timeout(title, options.timeout);
  TUTTI_CHECK(store_ != nullptr, "{}: its ranks have no store to meet in", title);
  std::sort(failed_ranks.begin(), failed_ranks.end());
  failed_ranks.erase(std::unique(failed_ranks.begin(), failed_ranks.end()), failed_ranks.end());
  for (const int r : failed_ranks) {
    TUTTI_CHECK(r >= 0 && r < size(), "{}: rank {} is out of range; legal: 0 to {}", title, r, size() - 1);
    TUTTI_CHECK(r != rank_, "{}: rank {} leaves out itself; only survivors call", title, r);
  }
  const int64_t ordinal = shrinks_.fetch_add(1) + 1;
  std::vector<int> survivors, members;
  for (int r = 0; r < size(); ++r) {
    if (std::binary_search(failed_ranks.begin(), failed_ranks.end(), r)) continue;
    survivors.push_back(r);
    members.push_back(world_ranks_[static_cast<size_t>(r)]);
  }
  WorldState& state = WorldState::current();
  std::vector<pid_t> pids;
  for (const int r : members) pids.push_back(state.pids.empty() ? 0 : state.pids[static_cast<size_t>(r)]);
  GroupOptions own = options;
  if (own.transport.empty()) own.transport = named_transport;
  if (own.name.empty()) own.name = fmt::format("{}:shrink:{}:[{}]", name_, ordinal, list(failed_ranks));
  if (own.description.empty()) own.description = description;
  const std::string key = fmt::format("{}/shrink/{}", key_, ordinal);
  MemberWatch watch(*store_, own.name, pids, survivors, far_members(state, survivors, members));
  watch.guard([&] {
    agree(*store_, title, key, rank_, survivors, list(failed_ranks), watch, options.timeout,
          [&](int r) { return state.describe_rank(r, world_ranks_[static_cast<size_t>(r)]); });
  });
  const int rank = static_cast<int>(std::find(survivors.begin(), survivors.end(), rank_) - survivors.begin());
  auto group = make_group(state, key + "/group", rank, members, own);
  GroupRegistry::current().add(own.name, group);
  return group;
}

}  // namespace tutti::comm
