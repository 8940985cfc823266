#include "tutti/symm/group.h"

#include <algorithm>
#include <numeric>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/call_board.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/handle.h"
#include "tutti/symm/workspace.h"

namespace tutti::comm::symm {

std::string make_group_key(std::string_view name, std::span<const int> global_ranks, uint64_t generation) {
  return fmt::format("symm/{:016x}/{}.{:016x}.{}", hash64(name), global_ranks.size(),
                     hash64(global_ranks.data(), global_ranks.size_bytes(), 0), generation);
}

SymmGroup::SymmGroup(std::string key, int rank, int size, std::shared_ptr<Store> store, std::vector<int> global_ranks,
                     std::chrono::milliseconds timeout, std::string name) {
  if (name.empty()) name = key;
  TUTTI_CHECK(size >= 1 && rank >= 0 && rank < size,
              "symmetric memory group '{}': rank {} of {}; a rank outside the group must not make it", name, rank,
              size);
  TUTTI_CHECK(store != nullptr, "symmetric memory group '{}' needs a store", name);
  TUTTI_CHECK(!key.empty(), "a symmetric memory group needs a key (make_group_key)");
  TUTTI_CHECK(timeout.count() > 0, "symmetric memory group '{}': timeout of {} ms", name, timeout.count());
  if (global_ranks.empty()) {
    global_ranks.resize(static_cast<size_t>(size));
    std::iota(global_ranks.begin(), global_ranks.end(), 0);
  }
  TUTTI_CHECK(global_ranks.size() == static_cast<size_t>(size),
              "symmetric memory group '{}': {} global ranks for {} ranks", name, global_ranks.size(), size);
  state_ = std::make_shared<GroupState>();
  state_->key = std::move(key);
  state_->name = std::move(name);
  state_->rank = rank;
  state_->size = size;
  state_->store = std::move(store);
  state_->global_ranks = std::move(global_ranks);
  state_->timeout = timeout;
}

const std::string& SymmGroup::key() const { return state_->key; }
const std::string& SymmGroup::name() const { return state_->name; }
int SymmGroup::rank() const { return state_->rank; }
int SymmGroup::size() const { return state_->size; }
const std::shared_ptr<Store>& SymmGroup::store() const { return state_->store; }
const std::vector<int>& SymmGroup::global_ranks() const { return state_->global_ranks; }
std::chrono::milliseconds SymmGroup::timeout() const { return state_->timeout; }

void SymmGroup::select_backend(std::string_view name) const {
  const std::string wanted = find_backend(name).traits().name;
  const std::lock_guard lock(state_->mutex);
  TUTTI_CHECK(state_->backend.empty() || state_->backend == wanted,
              "symmetric memory group '{}' uses backend {} and cannot change to {}; make another group for it",
              state_->name, state_->backend, wanted);
  state_->backend = wanted;
}

std::string SymmGroup::backend() const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->backend.empty()) return state_->backend;
  }
  select_backend(default_backend_name());
  return backend();
}

GroupState::~GroupState() {
  // Handles first, then the workspace they were made for; the store goes last.
  handles.clear();
  board.reset();
  workspace.reset();
  remove_stale_keys();
}

void GroupState::remove_stale_keys() noexcept {
  if (process.is_in_child()) return;
  try {
    for (const std::string& stale : stale_keys) store->delete_key(stale);
  } catch (const Error&) {
    // The store is gone, and the keys with it.
  }
  stale_keys.clear();
}

void GroupState::forget(uint64_t allocation) {
  std::vector<std::shared_ptr<SymmHandle>> dropped;  // destroyed when the lock is released
  const std::lock_guard lock(mutex);
  for (auto it = handles.begin(); it != handles.end();) {
    if (it->first.allocation != allocation) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second));
    it = handles.erase(it);
  }
}

}  // namespace tutti::comm::symm
