// Making groups, and finding them again by name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// How a job starts: where its ranks find each other (store/rendezvous.h), or a store that is there already.
struct InitOptions {
  std::string url = "env://";
  std::shared_ptr<Store> store = nullptr;  // with rank and world_size; instead of the url
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  GroupOptions group = {.name = "0", .description = "all ranks"};
};

// The group of all ranks of the job; this rank's world from then on. All ranks call it. UsageError when the rank has a
// world already, when neither a launcher's variables nor the options tell rank and world size, and when ranks give
// different world sizes; StoreTimeout names the ranks that did not come.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});
// UsageError when there is none.
std::shared_ptr<ProcessGroup> world();
bool has_world();
// Lets go of the world, its store and all names of this rank's registry.
void destroy_process_group();

// A group of some ranks of the world, in the given order; only they call it. Members that make several groups make them
// in the same order. UsageError when this rank is not among them, and on all members when they give different lists, names
// or transports, naming two of them; PeerError when one dies meanwhile; TimeoutError names the members that did not come.
std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& world_ranks, const GroupOptions& options = {});

// One group of the members of two disjoint ones: those of `a` first. Every member of either calls it with both groups'
// world ranks. Errors are those of new_group.
std::shared_ptr<ProcessGroup> merge(const std::vector<int>& a, const std::vector<int>& b, const GroupOptions& options = {});

}  // namespace tutti::comm
