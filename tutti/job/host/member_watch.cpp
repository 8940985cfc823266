#include "tutti/job/host/member_watch.h"

#include <unistd.h>

#include <atomic>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/job/host/host_identity.h"
#include "tutti/job/store/store_meeting.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {
namespace {

// What died may have been noticed as a connection that closed, on this rank or on another one.
constexpr std::chrono::milliseconds kDeathFollows{250};

// The pid of the first rank of a host that was found dead.
std::string key_of_death(const std::string& host) { return fmt::format("tutti/died/{:016x}", hash64(host)); }

// Why a process of this host ended.
std::string key_of_word(pid_t pid) { return fmt::format("tutti/ended/{:016x}/{}", hash64(host_identity()), pid); }

std::atomic<bool>& has_left_word() {
  static std::atomic<bool> has{false};
  return has;
}

[[noreturn]] void throw_death(const std::string& name, const std::string& group) {
  throw PeerError(fmt::format("{} died (its process is gone) while the group '{}' was made", name, group));
}

}  // namespace

MemberWatch::MemberWatch(Store& store, const std::string& group, std::vector<pid_t> pids, std::vector<int> shown_ranks,
                         std::vector<FarMember> far)
    : store_(store),
      group_(group),
      pids_(std::move(pids)),
      shown_ranks_(std::move(shown_ranks)),
      far_(std::move(far)),
      liveness_(pids_) {}

void MemberWatch::heed_deaths_elsewhere() {
  for (const FarMember& member : far_) {
    const std::string key = key_of_death(member.host);
    if (store_.check({key}) && store_.get(key) == fmt::format("{}", member.pid)) throw_death(member.name, group_);
  }
}

void MemberWatch::look_around(std::chrono::milliseconds patience) {
  store_.look();
  int dead = liveness_.find_dead(patience);
  try {
    heed_deaths_elsewhere();  // first: who is gone here may have ended because of one of them
    if (dead < 0) return;
    if (const std::string key = key_of_word(liveness_.pid(dead)); store_.check({key}))
      throw MeetingEnded(store_.get(key));
    // Who notices writes it down before it ends itself.
    const std::string first =
        store_.compare_set(key_of_death(host_identity()), "", fmt::format("{}", liveness_.pid(dead)));
    for (size_t r = 0; r < pids_.size(); ++r) {
      const int rank = static_cast<int>(r);
      if (fmt::format("{}", pids_[r]) == first && liveness_.is_dead(rank)) dead = rank;
    }
  } catch (const PeerError&) {
    throw;
  } catch (const EnvironmentError&) {
    // The dead rank served the store: everybody says what it sees itself.
    if (dead < 0) throw;
  }
  throw_death(describe(shown_rank(shown_ranks_, dead), {.pid = liveness_.pid(dead), .host = host_name()}), group_);
}

void MemberWatch::leave_word(Store& store, const std::string& why) {
  has_left_word() = true;
  try {
    store.compare_set(key_of_word(getpid()), "", why);
  } catch (const Error&) {
    // The store is gone: everybody says what it sees itself.
  }
}

void MemberWatch::take_back_word(Store& store) {
  if (has_left_word().exchange(false)) store.delete_key(key_of_word(getpid()));
}

void MemberWatch::guard(const std::function<void()>& step) {
  try {
    step();
  } catch (const TimeoutError&) {
    throw;
  } catch (const MeetingEnded& error) {
    leave_word(store_, error.what());
    throw;  // whoever told it knew the cause; those who have ended since then did because of it
  } catch (const EnvironmentError&) {
    try {
      look_around(kDeathFollows);
    } catch (const PeerError& error) {
      leave_word(store_, error.what());
      throw;
    }
    throw;
  }
}

}  // namespace tutti::comm
