// SymmGroup: a group of ranks that share symmetric memory.
//
// A SymmGroup is a value type; its copies refer to one group. Groups that were created separately are distinct, even
// with equal keys: each rank numbers the groups it creates under a key (in the store), so reusing a name never picks up
// state that an earlier group left behind, and a ProcessGroup over the same ranks is not affected. No name is
// registered in the process: the group's cached handles, its workspace and its channels are released with its last
// copy.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/job/store/store.h"

namespace tutti::comm::symm {

class GroupState;

// The one function that makes group keys. Groups with the same name over other ranks, or of another generation, get
// different keys.
std::string make_group_key(std::string_view name, std::span<const int> global_ranks, uint64_t generation);

class SymmGroup {
 public:
  SymmGroup() = default;  // no group
  // `key` comes from make_group_key() and is the same on all ranks; `store` is shared by all of them. `global_ranks`
  // lists the members in order (empty: 0, 1, 2, ...). `timeout` is the default for all collective calls. `name` is used
  // in messages; "": the key. Only members of the group create it. UsageError when the numbers contradict each other.
  // Makes no store call.
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

  // Binds this group to a backend (backend.h lists them); binding to the same one again does nothing. UsageError for an
  // unknown name, or, naming both, when the group is bound to another backend.
  void select_backend(std::string_view name) const;
  // The backend this group is bound to. If there is none, binds the default one (default_backend_name()).
  std::string backend() const;

  // For the implementation of symmetric memory.
  explicit SymmGroup(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  const std::shared_ptr<GroupState>& state() const { return state_; }

 private:
  std::shared_ptr<GroupState> state_;
};

}  // namespace tutti::comm::symm
