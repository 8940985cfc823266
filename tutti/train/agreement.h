// Agreement between the ranks of a run. All ranks of `group` must call these functions at the same point; a null group
// means a single rank.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include "tutti/comm/process_group.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::train {

inline bool is_first_rank(const comm::ProcessGroup* group) { return group == nullptr || group->rank() == 0; }

// Rank 0 tells the others whether it failed, in which case all ranks throw, so that none waits for a rank that has
// left.
void agree(comm::ProcessGroup* group, const std::exception_ptr& problem);

// Runs `action` on rank 0 only; if it throws, all ranks throw.
template <class Action>
void on_first_rank(comm::ProcessGroup* group, const Action& action) {
  std::exception_ptr problem;
  if (is_first_rank(group)) {
    try {
      action();
    } catch (...) {
      problem = std::current_exception();
    }
  }
  agree(group, problem);
}

// Runs `action` on every rank; if it throws on one, all ranks throw: its error there, and one that names the first such
// rank on the others.
void on_all_ranks(comm::ProcessGroup* group, FunctionRef<void()> action);

// Returns rank 0's value on all ranks.
int64_t value_of_first_rank(comm::ProcessGroup* group, int64_t value);

struct NamedHash {
  std::string name;  // "the text", for the message
  uint64_t hash;
};
// UsageError on every rank, naming the first of `mine` that differs between ranks and the ranks that differ from rank
// 0.
void check_equal_on_ranks(comm::ProcessGroup* group, std::span<const NamedHash> mine);

}  // namespace tutti::train
