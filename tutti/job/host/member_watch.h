// Detects deaths of members while a group is being created.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tutti/job/host/liveness.h"
#include "tutti/job/peer.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {

// One rank's side; one thread at a time.
class MemberWatch {
 public:
  // pids[r] is the process of the group's rank r, 0 where this process does not know it. `store` is the job's.
  // `shown_ranks` is what messages call the ranks; empty: by their numbers.
  MemberWatch(Store& store, const std::string& group, std::vector<pid_t> pids, std::vector<int> shown_ranks = {},
              std::vector<FarMember> far = {});
  // Throws PeerError when a member's process is gone: "rank 2 (pid 4711 on host7) died (its process is gone) while the
  // group 'dp' was made". Of several, all ranks of the host name the one that was noticed first in any group of the
  // job, not those that ended because of it. Deaths on other hosts are those that ranks there have written down before
  // they ended. Waits up to `patience` for a death: connections of a dying process close a moment before it counts as
  // dead.
  void look_around(std::chrono::milliseconds patience = {});
  // Runs a step of making the group. Where it fails because a member died (a connection that closed, the store that
  // went with it), that death is thrown instead.
  void guard(const std::function<void()>& step);

  // A rank that ends with `why` because another one died leaves that reason: who finds it gone says it, and does not
  // blame the rank.
  static void leave_word(Store& store, const std::string& why);
  // It has not ended, but makes another group.
  static void take_back_word(Store& store);

 private:
  void heed_deaths_elsewhere();
  Store& store_;
  const std::string group_;
  const std::vector<pid_t> pids_;
  const std::vector<int> shown_ranks_;
  const std::vector<FarMember> far_;
  Liveness liveness_;
};

}  // namespace tutti::comm
