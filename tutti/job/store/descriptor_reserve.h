// The file descriptors that a server leaves to the rest of its process, however many clients come.
#pragma once

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// Whether `fd`, which was made just now, belongs to the 64 that are kept for pipes of ranks, files and the like.
bool is_short_of_descriptors(int fd);
// A server of thousands of clients needs more descriptors than the usual soft limit of 1024. False when there are no
// more.
bool allow_more_descriptors();

// The same connection under the lowest number that is free. A server that has made room for it would count it among the
// reserve otherwise, and take the low number that has become free for granted.
UniqueFd with_lowest_number(UniqueFd fd);

}  // namespace tutti::comm
