#include "tutti/comm/shm/member_watch.h"

#include "tutti/comm/shm/host_identity.h"
#include "tutti/comm/transport.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {

MemberWatch::MemberWatch(Store& store, const std::string& group, std::vector<pid_t> pids)
    : store_(store), group_(group), pids_(std::move(pids)), liveness_(pids_) {}

void MemberWatch::look_around(std::chrono::milliseconds patience) {
  int dead = liveness_.find_dead(patience);
  if (dead < 0) return;
  try {
    // Who notices writes it down before it ends itself.
    const std::string key = fmt::format("tutti/died/{:016x}", hash64(host_identity()));
    const std::string first = store_.compare_set(key, "", fmt::format("{}", liveness_.pid(dead)));
    for (size_t r = 0; r < pids_.size(); ++r) {
      const int rank = static_cast<int>(r);
      if (fmt::format("{}", pids_[r]) == first && liveness_.is_dead(rank)) dead = rank;
    }
  } catch (const EnvironmentError&) {
    // The dead rank served the store: everybody says what it sees itself.
  }
  throw PeerError(fmt::format("{} died (its process is gone) while the group '{}' was made",
                              describe(dead, {.pid = liveness_.pid(dead), .host = host_name()}), group_));
}

}  // namespace tutti::comm
