#include "tutti/job/rendezvous/roll_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/job/deadline.h"
#include "tutti/job/host/host_identity.h"
#include "tutti/job/host/member_watch.h"
#include "tutti/job/store/store_meeting.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {
namespace {

std::string here_key(const std::string& key, const std::string& host) {
  return fmt::format("{}/here/{:016x}", key, hash64(host));
}

// What a rank says about itself: its pid, the name of its host, and the host's identity, which may have any characters.
std::string introduce(const std::string& host) { return fmt::format("{}\n{}\n{}", getpid(), host_name(), host); }

void read_introduction(const std::string& text, PeerIdentity& identity, std::string& host) {
  std::istringstream lines(text);
  lines >> identity.pid;
  lines.get();
  std::getline(lines, identity.host);
  std::getline(lines, host, '\0');
}

// "0 4711\n2 4713\n" by rank.
std::vector<pid_t> pids_in(const std::string& text, int size) {
  std::vector<pid_t> pids(static_cast<size_t>(size), 0);
  std::istringstream lines(text);
  int rank = 0;
  for (pid_t pid = 0; lines >> rank >> pid;) {
    if (rank >= 0 && rank < size) pids[static_cast<size_t>(rank)] = pid;
  }
  return pids;
}

// "0 2\n1 2\n" by arrival: how many ranks each rank expects. Ranks that expect different numbers would wait for each
// other under the same key, the ones for too few, the others for ever.
void check_expected_sizes(Store& store, const std::string& key, const std::string& group) {
  std::istringstream lines(store.get(key));
  int first_rank = 0, first_size = 0;
  lines >> first_rank >> first_size;
  for (int rank = 0, size = 0; lines >> rank >> size;) {
    TUTTI_CHECK(size == first_size,
                "group '{}': the ranks give different numbers of ranks: rank {} gives {}, rank {} gives {} (store {}). "
                "All ranks of a "
                "job must give the same world_size",
                group, first_rank, first_size, rank, size, store.address());
  }
}

}  // namespace

std::string alarm_of(const std::string& key) { return key + "/alarm"; }

RollCall call_roll(Store& store, const std::string& key, const std::string& group, int rank, int size,
                   std::chrono::milliseconds timeout) {
  const std::string host = host_identity(), here = here_key(key, host), sizes = key + "/sizes";
  // The others of this host watch whoever stands in this list.
  store.append(here, fmt::format("{} {}\n", rank, getpid()));
  store.append(sizes, fmt::format("{} {}\n", rank, size));
  check_expected_sizes(store, sizes, group);
  const StoreMeeting meeting{.store = store,
                             .key = key,
                             .alarm = alarm_of(key),
                             .rank = rank,
                             .size = size,
                             .deadline = deadline_after(timeout),
                             .look_around = [&] {
                               check_expected_sizes(store, sizes, group);
                               MemberWatch(store, group, pids_in(store.get(here), size)).look_around();
                             }};
  RollCall present;
  const Met met = meet_in_store(meeting, introduce(host), [&](const std::vector<int>& missing) {
    throw StoreTimeout(fmt::format("group '{}': ranks {} of {} did not come within {} ms (store {})", group,
                                   fmt::join(missing, ", "), size, timeout.count(), store.address()));
  });
  check_expected_sizes(store, sizes, group);
  for (const std::string& text : met.values) {
    read_introduction(text, present.identities.emplace_back(), present.hosts.emplace_back());
    present.pids.push_back(present.hosts.back() == host ? present.identities.back().pid : 0);
  }
  if (met.is_last) {
    for (const std::string& host_of_rank : present.hosts) store.delete_key(here_key(key, host_of_rank));
  }
  heed_alarm(store, alarm_of(key));  // all have called, but one may have gone again
  return present;
}

}  // namespace tutti::comm
