// Creation of process groups: the world, and groups of some of its ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// How a job starts: the URL where its ranks find each other (job/rendezvous/rendezvous.h), or an existing store.
struct InitOptions {
  std::string url = "env://";
  std::shared_ptr<Store> store = nullptr;  // used instead of the url; requires rank and world_size
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  GroupOptions group = {.name = "0", .description = "all ranks"};
  // SIGUSR1 makes this process write the last calls of all ranks in it (diagnose/dump_signal.h).
  bool dump_signal = true;
};

// Creates the group of all ranks of the job, which becomes this rank's world. All ranks must call it. UsageError when
// the rank already has a world, when neither a launcher's variables nor the options give rank and world size, and when
// ranks give different world sizes; StoreTimeout, naming the ranks that did not call, when the timeout passes.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});
// This rank's world. UsageError when there is none.
std::shared_ptr<ProcessGroup> world();
bool has_world();
// Releases the world, its store and all names in this rank's registry.
void destroy_process_group();

// Creates a group of some ranks of the world, in the given order; only these ranks call it. Ranks that create several
// groups must create them in the same order. UsageError when this rank is not in the list, and on all members, naming
// two of them, when they give different lists, names or transports; PeerError when a member dies meanwhile;
// TimeoutError, naming the members that did not call, when the timeout passes.
std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& world_ranks, const GroupOptions& options = {});

// Creates one group of the members of two disjoint groups, those of `a` first. Every member of either group calls it
// with the world ranks of both. Errors are those of new_group().
std::shared_ptr<ProcessGroup> merge(const std::vector<int>& a, const std::vector<int>& b,
                                    const GroupOptions& options = {});

}  // namespace tutti::comm
