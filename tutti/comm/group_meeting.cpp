#include "tutti/comm/group_meeting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/errors.h"
#include "tutti/job/store/store_meeting.h"

namespace tutti::comm {
namespace {

std::string key_of(const std::string& key, int place) { return fmt::format("{}/said/{}", key, place); }

std::string in_brackets(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

// The name may hold anything, so it stands in the middle.
std::string to_text(const GroupWish& wish) {
  return fmt::format("{}\n{}\n{}", fmt::join(wish.ranks, " "), wish.name, wish.transport);
}

GroupWish parse_wish(const std::string& text) {
  const size_t first = text.find('\n'), last = text.rfind('\n');
  TUTTI_CHECK_ENV(first != std::string::npos && first < last,
                  "a member of a group has stored '{}' instead of what it wants", text.substr(0, 80));
  GroupWish wish{.ranks = {}, .name = text.substr(first + 1, last - first - 1), .transport = text.substr(last + 1)};
  std::istringstream words(text.substr(0, first));
  for (int rank = 0; words >> rank;) wish.ranks.push_back(rank);
  return wish;
}

}  // namespace

bool has_come(Store& store, const std::string& key, int place) { return store.check({key_of(key, place)}); }

std::vector<GroupWish> meet_members(const MeetingSeat& seat, const GroupWish& own, FunctionRef<void()> look) {
  MemberWatch watch(seat.store, seat.group, seat.pids, seat.members, seat.far);
  seat.store.set(key_of(seat.key, seat.place), "1");
  const StoreMeeting meeting{.store = seat.store,
                             .key = seat.key + "/meeting",
                             .alarm = seat.key + "/alarm",
                             .rank = seat.place,
                             .size = static_cast<int>(seat.members.size()),
                             .deadline = deadline_after(seat.timeout),
                             .look_around = [&] {
                               watch.look_around();
                               look();
                             }};
  const Met met = meet_in_store(meeting, to_text(own), [&](const std::vector<int>& missing) {
    std::vector<std::string> names;
    for (const int place : missing) names.push_back(seat.names[static_cast<size_t>(place)]);
    throw TimeoutError(
        fmt::format("{}: {} did not call it within {} ms", seat.title, fmt::join(names, ", "), seat.timeout.count()));
  });
  std::vector<GroupWish> wishes;
  for (const std::string& text : met.values) wishes.push_back(parse_wish(text));
  return wishes;
}

void leave_meeting(const MeetingSeat& seat) {
  const std::string left = seat.key + "/left";
  const int64_t size = static_cast<int64_t>(seat.members.size());
  if (seat.store.add(left, 1) < size) return;
  for (int m = 0; m < size; ++m) seat.store.delete_key(key_of(seat.key, m));
  seat.store.delete_key(left);
}

std::string differing_terms(int rank_a, const GroupWish& a, int rank_b, const GroupWish& b) {
  const auto differs = [&](const char* what, const std::string& x, const std::string& y) {
    return fmt::format("the {} differ: '{}' on rank {}, '{}' on rank {}", what, x, rank_a, y, rank_b);
  };
  if (a.name != b.name) return differs("names of the group", a.name, b.name);
  if (a.transport != b.transport) return differs("transports", a.transport, b.transport);
  return "";
}

std::string why_no_split(const std::vector<GroupWish>& wishes) {
  const int size = static_cast<int>(wishes.size());
  for (int r = 0; r < size; ++r) {
    const GroupWish& own = wishes[static_cast<size_t>(r)];
    if (own.ranks.empty()) continue;
    std::set<int> seen;
    for (const int rank : own.ranks) {
      if (rank < 0 || rank >= size)
        return fmt::format("rank {} gives {}: rank {} is out of range; legal: 0 to {}", r, in_brackets(own.ranks), rank,
                           size - 1);
      if (!seen.insert(rank).second)
        return fmt::format("rank {} gives {}: rank {} is listed twice", r, in_brackets(own.ranks), rank);
    }
    if (!seen.contains(r)) {
      return fmt::format("rank {} is not among the ranks {} it gives; give an empty list to be in no group", r,
                         in_brackets(own.ranks));
    }
    for (const int member : own.ranks) {
      const GroupWish& other = wishes[static_cast<size_t>(member)];
      if (other.ranks != own.ranks) {
        return fmt::format("the lists differ: rank {} gives {}, and rank {}, which is in it, gives {}", r,
                           in_brackets(own.ranks), member, in_brackets(other.ranks));
      }
      if (const std::string terms = differing_terms(r, own, member, other); !terms.empty()) return terms;
    }
  }
  return "";
}

}  // namespace tutti::comm
