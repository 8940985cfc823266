// One meeting of the ranks of a group, in two phases: first all ranks read all records and reach the same verdict; then
// all ranks map the memory, and either all keep the mappings or none does. For rendezvous.cpp.
//
// Meetings are numbered, and the ranks count alike as long as all take part. A rank that gives up a meeting stores that
// fact; a rank that was absent, or is still waiting in it, continues with the next number, so that the next meeting has
// all ranks again.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/job/host/liveness.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/peer_record.h"

namespace tutti::comm::symm {

// Lives under the `collective` mutex of the group.
class Assembly {
 public:
  Assembly(const SymmGroup& group, Moment deadline);

  // "symmetric memory rendezvous #3 of group 'k' (4 ranks)"
  std::string title() const;
  // The keys of this meeting begin so; no other meeting's do.
  const std::string& prefix() const { return prefix_; }
  Moment deadline() const { return deadline_; }
  const std::vector<pid_t>& pids() const { return pids_; }  // of all ranks, after the first phase

  // Phase 1: what all ranks say, in rank order. Ends with fail() when a rank does not come, has died or speaks another
  // version.
  std::vector<PeerRecord> exchange_records(const PeerRecord& own);
  // Phase 2, while waiting: throws when a peer has died, or has said that it failed.
  void look_around();
  // Phase 2, the end: returns when all ranks have mapped; throws like look_around(), and TimeoutError.
  void commit();
  // In either phase: throws the first failure of any rank, on all ranks that had come by then.
  [[noreturn]] void fail(const Error& error);
  // After a verdict that all ranks found in the records: waits until all have read them, and removes them.
  void part();

 private:
  struct Failure {
    char kind = 'E';         // P: a peer died, T: a deadline, E: anything else
    std::vector<int> ranks;  // that are to read it
    std::string text;
  };

  std::string record_key(int rank) const;
  std::string failed_key() const { return prefix_ + "/failed"; }
  std::chrono::milliseconds patience() const;
  // False when not all came while this rank had patience.
  bool try_barrier(const char* name, size_t ranks);
  // True when this meeting has been given up without this rank.
  bool look_for_missing();
  std::optional<std::string> find(const std::string& key) const;
  std::vector<PeerRecord> read_records();
  std::string next_key() const;
  int64_t next_number() const;
  void give_up();
  void enter(int64_t number);
  void part(const std::vector<int>& ranks) noexcept;
  std::string with_title(const Error& error) const;
  static Failure parse_failure(const std::string& value);

  const SymmGroup& group_;
  GroupState& state_;
  Store& store_;
  Moment deadline_;
  std::string prefix_;
  std::vector<pid_t> pids_;
  std::unique_ptr<Liveness> liveness_;
};

}  // namespace tutti::comm::symm
