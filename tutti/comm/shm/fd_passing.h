// Descriptors between the processes of one host: memory files, sockets, anything a kernel object stands behind.
//
// One rank (the hub) listens on a socket without a file, whose name carries the job, the key and a random number that
// only readers of the store know; the others connect, and the kernel copies the descriptors. It costs one store call
// for each rank and one more for the hub. Nothing is left behind, in the store, in the process or in the file system,
// when a call has succeeded or failed.
//
// Both calls are collective: all `size` ranks make them with the same key, size and root. A key may be used again as
// soon as a call has returned. Ranks may be threads of one process. Store and sockets may be used by other threads at
// the same time.
//
// `look_around` is called ten times a second while a rank waits for others to come; what it throws ends the call on all
// ranks that have. It is where a caller that knows the processes of its ranks notices that one has died.
//
// `describe_rank` is what messages call a rank; without it "rank 2".
//
// Errors, on every rank that takes part: UsageError when ranks disagree about the group, TimeoutError at the deadline
// naming the ranks that did not come, PeerError when a rank died or gave up, EnvironmentError when a socket cannot be
// made (or the hub lives on another host).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/store/socket.h"
#include "tutti/comm/store/store.h"

namespace tutti::comm {

using FdDeadline = std::chrono::steady_clock::time_point;

// A descriptor of what `fd` of rank `root` stands for; root gets a duplicate. `fd` is looked at on root only and stays
// the caller's. All results are close-on-exec.
UniqueFd broadcast_fd(Store& store, const std::string& key, int rank, int size, int root, int fd, FdDeadline deadline,
                      const std::function<void()>& look_around = {}, const std::function<std::string(int)>& describe_rank = {});

// Element r stands for what rank r gave; the own element is a duplicate.
std::vector<UniqueFd> all_gather_fds(Store& store, const std::string& key, int rank, int size, int fd,
                                     FdDeadline deadline, const std::function<void()>& look_around = {});

}  // namespace tutti::comm
