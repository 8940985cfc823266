// GroupKeeper: a small process that ends what the ranks have started when their launcher ends without being able to, as
// after SIGKILL.
//
// Each rank leads a process group. While the launcher lives it kills the group when the rank ends. The keeper knows the
// groups of the ranks that have not ended; when its connection to the launcher closes, it waits for the end of each of
// these ranks, which the kernel ends or asks to end (launched.h), and kills what is left of its group. A process that
// has left the group (setsid, setpgid) is on its own.
#pragma once

#include <sys/types.h>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// One thread at a time.
class GroupKeeper {
 public:
  // EnvironmentError when the process cannot be started.
  GroupKeeper();
  // The keeper ends.
  ~GroupKeeper();
  GroupKeeper(const GroupKeeper&) = delete;
  GroupKeeper& operator=(const GroupKeeper&) = delete;

  // `leader` is a child of this process that leads its group. Forget it before it is waited for: afterwards its number
  // may be another's.
  void keep(pid_t leader) const { tell(leader); }
  void forget(pid_t leader) const { tell(-leader); }

 private:
  void tell(pid_t word) const;
  UniqueFd fd_;
  pid_t pid_ = -1;
};

}  // namespace tutti::comm
