// Detection of ranks that wait for each other while creating different groups.
//
// Each rank stores which group it is creating. If a missing member is creating another group, in which a rank waits for
// a rank that waits in this one, they would wait forever: the ranks have passed different lists or used different
// orders.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/job/store/store.h"

namespace tutti::comm {

// The n-th group that its members create with one list of world ranks.
struct GroupInMaking {
  std::vector<int> ranks;
  int64_t ordinal = 0;
  bool operator==(const GroupInMaking&) const = default;
};

class GroupConflicts {
 public:
  // `world` is the key of the world; `ordinals` counts the groups of each list that this rank has made or given up.
  GroupConflicts(Store& store, std::string world, int rank, std::map<std::string, int64_t>& ordinals);
  ~GroupConflicts();  // a rank that gives up waits for nobody
  GroupConflicts(const GroupConflicts&) = delete;
  GroupConflicts& operator=(const GroupConflicts&) = delete;

  // Says that this rank makes the next group of the list / that all its members have come, before they leave each
  // other.
  const GroupInMaking& begin(const std::vector<int>& ranks);
  void end() { store_.delete_key(making_key(rank_)); }
  // The store key of the group, under which its members tell each other what they want.
  std::string key(const GroupInMaking& group) const;
  // UsageError on all members of all groups concerned when there is a conflict.
  void look();

 private:
  using Path = std::vector<std::pair<int, GroupInMaking>>;
  std::optional<GroupInMaking> made_by(int rank) const;
  bool waits_for(int rank, const GroupInMaking& group, int other) const;
  bool find_circle(Path& path) const;
  std::string making_key(int rank) const;
  std::string refused_key(const GroupInMaking& group) const;
  [[noreturn]] void give_up(const std::string& refusal);

  Store& store_;
  const std::string world_;
  const int rank_;
  std::map<std::string, int64_t>& ordinals_;
  GroupInMaking own_;
  Path last_;  // a circle is believed when it is seen twice: its ranks are asked one after the other
};

}  // namespace tutti::comm
