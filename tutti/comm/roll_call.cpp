#include "tutti/comm/roll_call.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "tutti/comm/deadline.h"
#include "tutti/comm/shm/host_identity.h"
#include "tutti/comm/shm/member_watch.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::milliseconds kLookAround{100};

std::string key_of(const std::string& key, int rank) { return fmt::format("{}/rank/{}", key, rank); }

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

std::string not_there(Store& store, const std::string& key, int size) {
  const Store::Keys came = store.list_keys(key + "/rank/");
  std::string missing;
  for (int r = 0; r < size; ++r) {
    if (std::find(came.begin(), came.end(), key_of(key, r)) == came.end()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  }
  return missing;
}

}  // namespace

RollCall call_roll(Store& store, const std::string& key, const std::string& group, int rank, int size, std::chrono::milliseconds timeout) {
  const auto deadline = deadline_after(timeout);
  const std::string host = host_identity(), here = fmt::format("{}/here/{:016x}", key, hash64(host)), complete = key + "/complete";
  // The others of this host watch whoever stands in this list.
  store.append(here, fmt::format("{} {}\n", rank, getpid()));
  store.set(key_of(key, rank), host);
  // One small key to wait for, because every rank asks for it again and again.
  if (store.add(key + "/came", 1) == size) store.set(complete, "1");
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      store.wait({complete}, std::clamp(left, std::chrono::milliseconds(0), kLookAround));
      break;
    } catch (const StoreTimeout&) {
      MemberWatch(store, group, pids_in(store.get(here), size)).look_around();
      if (left > kLookAround) continue;
      throw StoreTimeout(fmt::format("group '{}': ranks {} of {} did not come within {} ms (store {})", group, not_there(store, key, size), size,
                                     timeout.count(), store.address()));
    }
  }
  Store::Keys keys;
  for (int r = 0; r < size; ++r) keys.push_back(key_of(key, r));
  return {.hosts = store.multi_get(keys), .pids = pids_in(store.get(here), size)};
}

}  // namespace tutti::comm
