#include "tutti/comm/group_conflict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "tutti/comm/group_meeting.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

std::string list(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ",")); }

// "2 0,1,3"
std::string to_text(const GroupInMaking& group) { return fmt::format("{} {}", group.ordinal, list(group.ranks)); }

GroupInMaking parse_group(const std::string& text) {
  GroupInMaking group;
  std::istringstream words(text);
  words >> group.ordinal;
  for (int rank = 0; words >> rank; words.ignore(1)) group.ranks.push_back(rank);
  return group;
}

}  // namespace

GroupConflicts::GroupConflicts(Store& store, std::string world, int rank, std::map<std::string, int64_t>& ordinals)
    : store_(store), world_(std::move(world)), rank_(rank), ordinals_(ordinals) {}

GroupConflicts::~GroupConflicts() {
  try {
    end();
  } catch (const Error&) {
    // The store is gone, and the key with it.
  }
}

std::string GroupConflicts::making_key(int rank) const { return fmt::format("{}/making/{}", world_, rank); }
std::string GroupConflicts::key(const GroupInMaking& group) const {
  return fmt::format("{}/group/{}/{}", world_, list(group.ranks), group.ordinal);
}
std::string GroupConflicts::refused_key(const GroupInMaking& group) const { return key(group) + "/refused"; }

const GroupInMaking& GroupConflicts::begin(const std::vector<int>& ranks) {
  own_ = {.ranks = ranks, .ordinal = ++ordinals_[list(ranks)]};
  store_.set(making_key(rank_), to_text(own_));
  return own_;
}

std::optional<GroupInMaking> GroupConflicts::made_by(int rank) const {
  if (!store_.check({making_key(rank)})) return std::nullopt;
  try {
    return parse_group(store_.get(making_key(rank), std::chrono::milliseconds(0)));
  } catch (const StoreTimeout&) {
    return std::nullopt;  // made by now
  }
}

// Whether `rank`, which makes `group`, waits for `other`. Its word is heard once more behind the answer, which means
// nothing when the group has been made meanwhile.
bool GroupConflicts::waits_for(int rank, const GroupInMaking& group, int other) const {
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), other);
  if (place == group.ranks.end() || has_come(store_, key(group), static_cast<int>(place - group.ranks.begin())))
    return false;
  return rank == rank_ || made_by(rank) == group;
}

// Extends the path, in which each waits for the next, until the last one waits for this rank.
bool GroupConflicts::find_circle(Path& path) const {
  const auto [rank, group] = path.back();
  if (path.size() > 1 && waits_for(rank, group, rank_)) return true;
  for (const int other : group.ranks) {
    const bool is_known = std::any_of(path.begin(), path.end(), [&](const auto& step) { return step.first == other; });
    if (is_known || !waits_for(rank, group, other)) continue;
    const auto made = made_by(other);
    if (!made || *made == group) continue;
    path.emplace_back(other, *made);
    if (find_circle(path)) return true;
    path.pop_back();
  }
  return false;
}

void GroupConflicts::look() {
  if (store_.check({refused_key(own_)})) give_up(store_.get(refused_key(own_)));
  Path path{{rank_, own_}};
  const bool found = find_circle(path);
  if (found && path == last_) {
    // "2 0,1|1 0,2\nthe text"
    std::string groups, text;
    for (const auto& [rank, group] : path) {
      groups += fmt::format("{}{}", groups.empty() ? "" : "|", to_text(group));
      text += fmt::format("{}rank {} makes a group of [{}]", text.empty() ? "" : ", ", rank, list(group.ranks));
    }
    const std::string own = fmt::format(
        "{}\nnew_group: the members differ: {}; each waits for another of them. All members of a group must give the "
        "same list, and make their groups in the same order",
        groups, text);
    const std::string agreed = store_.compare_set(refused_key(own_), "", own);
    for (const auto& [rank, group] : path) store_.compare_set(refused_key(group), "", agreed);
    give_up(agreed);
  }
  last_ = found ? path : Path{};
}

// The groups concerned count as made on all their members, so that the next ones of these lists meet.
void GroupConflicts::give_up(const std::string& refusal) {
  const size_t end = refusal.find('\n');
  std::istringstream groups(refusal.substr(0, end));
  for (std::string text; std::getline(groups, text, '|');) {
    const GroupInMaking group = parse_group(text);
    int64_t& ordinal = ordinals_[list(group.ranks)];
    ordinal = std::max(ordinal, group.ordinal);
  }
  throw UsageError(end == std::string::npos ? refusal : refusal.substr(end + 1));
}

}  // namespace tutti::comm
