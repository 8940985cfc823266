// Passing of file descriptors (memory files, sockets, ...) between the processes of one host.
//
// One rank (the hub) listens on an abstract socket whose name contains the job, the key and a random number that
// only readers of the store know; the others connect, and the kernel copies the descriptors. This costs one store call
// per rank and one more for the hub. Whether a call succeeds or fails, nothing is left behind in the store, in the
// process or in the file system.
//
// Both calls are collective: all `size` ranks make them with the same key, size and root. A key may be used again as
// soon as a call has returned. Ranks may be threads of one process. Store and sockets may be used by other threads at
// the same time.
//
// `look_around` is called ten times a second while a rank waits for others; an exception from it ends the call on all
// ranks that have joined. A caller that knows the processes of its ranks can use it to detect that one has died.
//
// `describe_rank` returns the name of a rank for messages; the default is "rank 2".
//
// Errors, on every rank that takes part: UsageError when ranks disagree about the group, TimeoutError at the deadline,
// naming the ranks that did not join, PeerError when a rank died or gave up, EnvironmentError when a socket cannot be
// created (or the hub is on another host).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tutti/job/store/store.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

using FdDeadline = std::chrono::steady_clock::time_point;

// Returns a descriptor of the object behind `fd` of rank `root`; root gets a duplicate. `fd` is used on root only and
// remains owned by the caller. All results are close-on-exec.
UniqueFd broadcast_fd(Store& store, const std::string& key, int rank, int size, int root, int fd, FdDeadline deadline,
                      const std::function<void()>& look_around = {},
                      const std::function<std::string(int)>& describe_rank = {});

// Element r is a descriptor of the object that rank r passed; this rank's own element is a duplicate.
std::vector<UniqueFd> all_gather_fds(Store& store, const std::string& key, int rank, int size, int fd,
                                     FdDeadline deadline, const std::function<void()>& look_around = {});

}  // namespace tutti::comm
