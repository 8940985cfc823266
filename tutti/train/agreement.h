// What the ranks of a run settle together before they go on. All ranks of `group` call these at the same place; a null
// group is one rank alone.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include "tutti/comm/process_group.h"

namespace tutti::train {

inline bool is_first_rank(const comm::ProcessGroup* group) { return group == nullptr || group->rank() == 0; }

// Rank 0 tells the others whether it failed; then all throw, and none waits for a rank that is gone.
void agree(comm::ProcessGroup* group, const std::exception_ptr& problem);

// Runs `action` on rank 0 only, and agrees about how it ended.
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

// The value that rank 0 has.
int64_t value_of_first_rank(comm::ProcessGroup* group, int64_t value);

struct NamedHash {
  std::string name;  // "the text", for the message
  uint64_t hash;
};
// UsageError on every rank, naming the first of `mine` that differs and the ranks that have another one than rank 0.
void check_equal_on_ranks(comm::ProcessGroup* group, std::span<const NamedHash> mine);

}  // namespace tutti::train
