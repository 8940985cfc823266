// The ranks that share memory with each other, as symmetric memory sees them.
//
// A SymmGroup is a value; its copies are one group. Two groups that were made apart are two groups, whatever their
// keys: each rank numbers the groups it makes under a key (in the store), so a name that is used again never meets what
// an earlier group left behind, and an ordinary group over the same ranks is never touched. No name is kept anywhere in
// the process: when the last copy goes, so do the group's cached handles, its workspace and its channels.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/store/store.h"

namespace tutti::comm::symm {

class GroupState;

// The only maker of group keys: who registers, looks up, allocates or meets uses its result. Groups of one name over
// other ranks, or of another generation, get other keys.
std::string make_group_key(std::string_view name, std::span<const int> global_ranks, uint64_t generation);

class SymmGroup {
 public:
  SymmGroup() = default;  // no group
  // `key` comes from make_group_key and is the same on all ranks; `store` reaches all of them. `global_ranks` names the
  // members in order (empty: 0, 1, 2, ...). `timeout` is how long anything collective may take when it is not told.
  // `name` is what messages call the group; "": its key. A rank outside the group makes none. UsageError when the numbers
  // contradict each other. Costs no store call.
  SymmGroup(std::string key, int rank, int size, std::shared_ptr<Store> store, std::vector<int> global_ranks = {},
            std::chrono::milliseconds timeout = std::chrono::minutes(5), std::string name = "");

  explicit operator bool() const { return state_ != nullptr; }
  const std::string& key() const;
  const std::string& name() const;
  int rank() const;
  int size() const;
  const std::shared_ptr<Store>& store() const;
  const std::vector<int>& global_ranks() const;
  std::chrono::milliseconds timeout() const;
  bool is_same(const SymmGroup& other) const { return state_ == other.state_; }

  // Binds this group to a backend (backend.h lists them); the same again does nothing. UsageError for an unknown name,
  // and naming both when the group is bound to another one.
  void select_backend(std::string_view name) const;
  // The backend this group is bound to; binds the default one (TUTTI_SYMM_BACKEND, else native) when it is not.
  std::string backend() const;

  // For the files of this folder.
  explicit SymmGroup(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  const std::shared_ptr<GroupState>& state() const { return state_; }

 private:
  std::shared_ptr<GroupState> state_;
};

}  // namespace tutti::comm::symm
