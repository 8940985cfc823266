#include "tutti/symm/assembly.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tutti/job/deadline.h"
#include "tutti/job/errors.h"

namespace tutti::comm::symm {
namespace {

using std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// After a failure: how long the ranks wait for each other to have read why.
constexpr Milliseconds kFarewell{2000};

}  // namespace

Assembly::Assembly(const SymmGroup& group, Moment deadline)
    : group_(group), state_(*group.state()), store_(*group.store()), deadline_(deadline) {
  // The number of this group among those this rank made under the key: an earlier one's keys are never met.
  if (state_.incarnation == 0) state_.incarnation = store_.add(fmt::format("{}/made/{}", group.key(), group.rank()), 1);
  enter(std::max(state_.meetings + 1, next_number()));
}

void Assembly::enter(int64_t number) {
  state_.meetings = number;
  prefix_ = fmt::format("{}/{}/{}", group_.key(), state_.incarnation, number);
}

// ---- numbers --------------------------------------------------------------------------------------------------------

// Is there once a meeting was given up: what comes after it.
std::string Assembly::next_key() const { return fmt::format("{}/{}/next", group_.key(), state_.incarnation); }

int64_t Assembly::next_number() const {
  if (!store_.check({next_key()})) return 1;
  return store_.add(next_key(), 0);
}

void Assembly::give_up() {
  const std::string next = std::to_string(state_.meetings + 1);
  for (std::string seen; next_number() <= state_.meetings;) {
    seen = store_.compare_set(next_key(), seen, next);
  }
}

// ---- saying and reading ---------------------------------------------------------------------------------------------

std::string Assembly::title() const {
  return fmt::format("symmetric memory rendezvous #{} of group '{}' ({} ranks)", state_.meetings, group_.name(),
                     group_.size());
}

std::string Assembly::with_title(const Error& error) const {
  const std::string text = error.what();
  return text.starts_with(title()) ? text : fmt::format("{}: rank {}: {}", title(), group_.rank(), text);
}

std::string Assembly::record_key(int rank) const { return fmt::format("{}/{}", prefix_, rank); }

Milliseconds Assembly::patience() const {
  const auto left = std::chrono::ceil<Milliseconds>(deadline_ - steady_clock::now());
  return std::clamp(left, Milliseconds(1), kLookAround);
}

// The only wait on the store per allocation and group; every later use synchronizes in shared memory.
std::vector<PeerRecord> Assembly::exchange_records(const PeerRecord& own) {
  std::vector<PeerRecord> records;
  while (records.empty()) {
    store_.set(record_key(own.rank), to_text(own));
    state_.stale_keys.push_back(record_key(own.rank));
    pids_ = state_.pids;
    pids_.resize(static_cast<size_t>(group_.size()), 0);
    try {
      records = read_records();
    } catch (const EnvironmentError& error) {
      fail(error);
    } catch (const UsageError&) {
      part();
      throw;
    }
    if (!records.empty()) break;
    state_.remove_stale_keys();
    enter(std::max(state_.meetings + 1, next_number()));
  }
  liveness_ = std::make_unique<Liveness>(pids_);
  return records;
}

// None when the others have given this meeting up.
std::vector<PeerRecord> Assembly::read_records() {
  std::vector<std::string> keys, texts;
  for (int r = 0; r < group_.size(); ++r) keys.push_back(record_key(r));
  while (texts.empty()) {
    try {
      texts = store_.multi_get(keys, patience());
    } catch (const StoreTimeout&) {
      if (look_for_missing()) return {};
    }
  }
  std::vector<PeerRecord> records;
  for (int r = 0; r < group_.size(); ++r) {
    records.push_back(parse_record(texts[static_cast<size_t>(r)], r));
    pids_[static_cast<size_t>(r)] = static_cast<pid_t>(records.back().pid);
  }
  return records;
}

// Its owner may remove it at any moment.
std::optional<std::string> Assembly::find(const std::string& key) const {
  if (!store_.check({key})) return std::nullopt;
  try {
    return store_.get(key, Milliseconds(0));
  } catch (const StoreTimeout&) {
    return std::nullopt;
  }
}

bool Assembly::look_for_missing() {
  if (const auto text = find(failed_key())) {
    const Failure failure = parse_failure(*text);
    const bool was_there = std::find(failure.ranks.begin(), failure.ranks.end(), group_.rank()) != failure.ranks.end();
    if (was_there) throw EnvironmentError(failure.text);
    return true;
  }
  if (next_number() > state_.meetings) return true;
  std::vector<int> missing;
  for (int r = 0; r < group_.size(); ++r) {
    if (const auto text = find(record_key(r))) {
      const PeerRecord record = parse_record(*text, r);
      pids_[static_cast<size_t>(r)] = static_cast<pid_t>(record.pid);
      // The rank that is missing may be none of the group's as the others made it.
      TUTTI_CHECK(record.size == group_.size(), "{}: the group sizes differ: rank {}: {}; rank {}: {}", title(), r,
                  record.size, group_.rank(), group_.size());
    } else {
      missing.push_back(r);
    }
  }
  Liveness liveness(pids_);
  const int dead = liveness.find_dead();
  if (dead >= 0) throw PeerError(fmt::format("{}: rank {} (pid {}) died", title(), dead, liveness.pid(dead)));
  if (steady_clock::now() >= deadline_) {
    throw TimeoutError(fmt::format("{}: ranks {} did not come before the deadline", title(), fmt::join(missing, ", ")));
  }
  return false;
}

void Assembly::look_around() {
  if (const auto text = find(failed_key())) throw EnvironmentError(parse_failure(*text).text);
  const int dead = liveness_->find_dead();
  if (dead >= 0) throw PeerError(fmt::format("{}: rank {} (pid {}) died", title(), dead, liveness_->pid(dead)));
  if (next_number() > state_.meetings) throw EnvironmentError(fmt::format("{}: another rank has given it up", title()));
}

bool Assembly::try_barrier(const char* name, size_t ranks) {
  try {
    store_.barrier(fmt::format("{}/{}", prefix_, name), static_cast<int64_t>(ranks), patience());
    return true;
  } catch (const StoreTimeout&) {
    return false;
  }
}

void Assembly::commit() {
  while (!try_barrier("mapped", static_cast<size_t>(group_.size()))) {
    look_around();
    if (steady_clock::now() >= deadline_) {
      throw TimeoutError(fmt::format("{}: not all ranks have mapped before the deadline", title()));
    }
  }
  state_.remove_stale_keys();
  state_.pids = pids_;
}

void Assembly::fail(const Error& error) {
  std::vector<int> here;
  for (int r = 0; r < group_.size(); ++r) {
    if (store_.check({record_key(r)})) here.push_back(r);
  }
  char kind = 'E';
  if (dynamic_cast<const PeerError*>(&error) != nullptr) kind = 'P';
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) kind = 'T';
  // "T0,2:text"
  const std::string own = fmt::format("{}{}:{}", kind, fmt::join(here, ","), with_title(error));
  const std::string agreed = store_.compare_set(failed_key(), "", own);
  if (agreed == own) state_.stale_keys.push_back(failed_key());
  const Failure failure = parse_failure(agreed);
  give_up();
  part(failure.ranks);
  if (failure.kind == 'P') throw PeerError(failure.text);
  if (failure.kind == 'T') throw TimeoutError(failure.text);
  throw EnvironmentError(failure.text);
}

Assembly::Failure Assembly::parse_failure(const std::string& value) {
  const size_t colon = value.find(':');
  TUTTI_CHECK_ENV(colon != std::string::npos && colon > 0, "symmetric memory: '{}' is no failure", value.substr(0, 80));
  Failure failure{.kind = value[0], .ranks = {}, .text = value.substr(colon + 1)};
  int number = 0;
  for (const char c : value.substr(1, colon)) {  // with the colon, which ends the last number
    if (c >= '0' && c <= '9') {
      number = 10 * number + (c - '0');
    } else {
      failure.ranks.push_back(number);
      number = 0;
    }
  }
  return failure;
}

void Assembly::part() {
  std::vector<int> all;
  for (int r = 0; r < group_.size(); ++r) all.push_back(r);
  part(all);
}

// Keys that cannot be removed now are at the next meeting, or with the group.
void Assembly::part(const std::vector<int>& ranks) noexcept {
  if (std::find(ranks.begin(), ranks.end(), group_.rank()) == ranks.end()) return;
  deadline_ = deadline_after(kFarewell);
  Liveness liveness(pids_);
  try {
    while (!try_barrier("read", ranks.size())) {
      if (liveness.find_dead() >= 0 || steady_clock::now() >= deadline_) return;
    }
    state_.remove_stale_keys();
  } catch (const Error&) {
    // The store is gone, and the keys with it.
  }
}

}  // namespace tutti::comm::symm
