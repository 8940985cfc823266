// The rights of a fork()ed child of a rank over what it inherits, for the tests of every transport.
#pragma once

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// Every rank of `group` calls it. Rank 0 forks children, which try all calls, drop what they have inherited and make
// groups of their own; then the ranks go on. Throws std::runtime_error where a call is carried out in a child, or
// disturbs the ranks.
void check_forked_child(ProcessGroup& group);

}  // namespace tutti::comm
