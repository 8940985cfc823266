// ProcessGroup: a set of ranks that run collectives together.
//
// A group holds one backend per device kind and passes each call to the backend for the device of its tensors. W is the
// group's size, r this rank's number in it; docs/comm.md describes shapes and results of each call. Every member must
// make the same calls in the same order; a mismatch is a UsageError on all ranks, naming two of them and the field that
// differs, and so is a call whose arguments are wrong on one rank. When a peer dies, leaves or is late, all other ranks
// throw PeerError or TimeoutError, naming it, and the group ends.
//
// Any thread of the rank may call; the calls of one group run in the order in which they are made. A fork()ed child has
// no part in its parent's groups: calls there are a UsageError, which the other ranks do not notice, and groups that
// are dropped there go on in the parent.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/backend.h"
#include "tutti/core/error.h"
#include "tutti/job/store/store.h"
#include "tutti/runtime/fork_guard.h"
#include "tutti/symm/group.h"

namespace tutti::comm {

class Coalescing;
class ProcessGroup;
symm::SymmGroup symm_group(ProcessGroup& group);  // symmetric_buffer.h

// Options for the creation of a group.
struct GroupOptions {
  std::string name;         // equal on all members; "": generated
  std::string description;  // a readable description for messages and traces
  // The transport for host tensors: a name from known_transports(), or "" for the one that was named for the group
  // which the members come from (the world, or the group that is split); where none was, that of TUTTI_TRANSPORT, else
  // the best one available to all members. With GPUs, one per device kind: "cpu:shm,cuda:nccl".
  std::string transport;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for each call, and for the creation of the group
  // Check the inputs of every call for NaN and infinity (diagnose/finite_check.h); not set: as TUTTI_COMM_CHECK_NAN
  // says.
  std::optional<bool> check_nan = {};
};

struct Health {
  bool ok = true;
  std::string failure;  // why not
};

// A rank's view of the monitored barriers of its group, numbered from 1.
struct MonitoredBarriers {
  int64_t made = 0;              // how many this rank has called
  std::vector<int64_t> reached;  // on rank 0: the last barrier that each rank has reached
  int64_t told = 0;              // on other ranks: the last barrier whose outcome rank 0 has announced,
  int64_t first_missing = -1;    // and the rank that did not reach it
};

class ProcessGroup : public std::enable_shared_from_this<ProcessGroup>, public NamedCollectives<ProcessGroup> {
 public:
  // For programs with their own backends; init_process_group, new_group and split create groups with transports.
  // `world_ranks` are the members in group-rank order; `key` is unique among all groups of the job.
  ProcessGroup(std::string name, std::string key, int rank, std::vector<int> world_ranks, std::shared_ptr<Store> store);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return name_; }
  const std::string& key() const { return key_; }
  std::string description;
  std::string named_transport;  // for this group, or for the one from which it comes; "": none was
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank() const { return world_ranks_[static_cast<size_t>(rank_)]; }
  // The group rank of a world rank. UsageError when it is not a member.
  int group_rank_of(int world_rank) const;
  const std::shared_ptr<Store>& store() const { return store_; }

  // ---- backends
  void set_backend(DeviceKind kind, std::shared_ptr<Backend> backend);
  // UsageError, naming the device kind, when the group has no backend for it.
  Backend& backend(DeviceKind kind) const;
  Answer can(const CallQuery& query) const;

  // ---- collectives, of which NamedCollectives has the methods
  // Makes a call of any row of the table (collective_def.h), also of those that have no method.
  Work run(const CollectiveCall& call);
  // Blocking all_reduce of values that are not in a tensor, in place.
  template <class T>
  void all_reduce_values(std::span<T> values, const ReduceOp& op = {}) {
    all_reduce(Tensor::from_memory(values.data(), {static_cast<int64_t>(values.size())}, dtype_of<T>, {}), op);
  }
  // `output` is used on root only; its dim 0 holds the W inputs one after another.
  Work gather_single(const Tensor& output, const Tensor& input, int root, const CallOptions& options = {});
  // Rank 0 waits for all ranks, at most `timeout`, and throws an error that names the first rank that did not reach the
  // barrier, or all of them with `wait_all_ranks`. The other ranks throw as well, even those that arrive later. Call n
  // of one rank matches call n of the others, so a failed barrier does not disturb the next one.
  void monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks = false);

  // Runs `call`, which makes collectives of this group, and returns its result. If it ends with a UsageError before its
  // first one, as when an argument is wrong, the error is told to all ranks in the place of that collective, of the
  // given kind: the other ranks throw as well, and the next calls meet again. The collectives above do this by
  // themselves; it is for functions made of them.
  template <class Call>
  auto checked(CollectiveKind kind, const Call& call) {
    const int64_t before = collectives_made();
    try {
      return call();
    } catch (const UsageError& error) {
      if (collectives_made() == before) refuse(kind, error.what());
      throw;
    }
  }

  // ---- point-to-point messages; tags are below 2^31
  Work send(const Tensor& tensor, int peer, uint32_t tag = 0, const CallOptions& options = {});
  Work recv(const Tensor& tensor, int peer, uint32_t tag = 0, const CallOptions& options = {});
  // Receives a message from any rank; source_rank() of the Work tells from which.
  Work recv_any(const Tensor& tensor, uint32_t tag = 0, const CallOptions& options = {.async = true});
  Work isend(const Tensor& tensor, int peer, uint32_t tag = 0) { return send(tensor, peer, tag, {.async = true}); }
  Work irecv(const Tensor& tensor, int peer, uint32_t tag = 0) { return recv(tensor, peer, tag, {.async = true}); }
  // Starts all operations together, so that no order among them can cause a deadlock.
  Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options = {.async = true});

  // ---- byte strings, passed unchanged; all of these block
  std::string broadcast_bytes(const std::string& bytes, int root);
  std::vector<std::string> all_gather_bytes(const std::string& bytes);
  // The result is empty except on root.
  std::vector<std::string> gather_bytes(const std::string& bytes, int root);
  // `parts` has one entry per rank and is used on root only.
  std::string scatter_bytes(const std::vector<std::string>& parts, int root);
  void send_bytes(const std::string& bytes, int peer, uint32_t tag = 0);
  std::string recv_bytes(int peer, uint32_t tag = 0);

  // ---- new groups; each function returns this rank's new group, or null for a rank that is in none
  // Every member of this group must call it; `ranks` are group ranks of this group, in the order of the new one.
  // Members may pass different lists, which must then be disjoint: one call splits the group into several. UsageError
  // on all members, naming two of them, when lists overlap or members of one list pass different names or transports;
  // otherwise errors are those of new_group().
  std::shared_ptr<ProcessGroup> split(const std::vector<int>& ranks, const GroupOptions& options = {});

  // A new group without `failed_ranks` (group ranks), with the other ranks in the same order. Exactly these other ranks
  // must call it, before or after this group has ended with a PeerError. They communicate through the store, which must
  // have survived. UsageError on all of them when their lists differ; TimeoutError, naming the ranks that did not call,
  // when the timeout passes; PeerError when another rank dies.
  std::shared_ptr<ProcessGroup> shrink(std::vector<int> failed_ranks, const GroupOptions& options = {});

  // This group and up to most - 1 more of the same ranks, over transports of their own, so that calls of different
  // lanes travel at the same time. Only this group where that would gain nothing (Backend::gains_by_lanes()). Every
  // member must call it with the same number, at least 1; errors are those of new_group(). Lanes are made once, live as
  // long as this group, and end when it is aborted; health() is that of all of them.
  std::vector<ProcessGroup*> lanes(size_t most);
  // How lane n is made, for programs with their own backends.
  using LaneMaker = std::function<std::shared_ptr<ProcessGroup>(ProcessGroup& group, size_t n)>;
  void set_lane_maker(LaneMaker maker) { lane_maker_ = std::move(maker); }

  // ---- failing
  // Ends the group on every rank: waiting and later calls throw PeerError with `reason`. Any thread.
  void abort(std::string_view reason);
  Health health() const;
  // Sets the default for later calls without their own timeout. UsageError unless it is positive.
  void set_timeout(std::chrono::milliseconds timeout);
  // That default, of calls on host tensors where the group has a transport for them.
  std::chrono::milliseconds timeout() const;
  void set_check_nan(bool on);
  // Whether this is a fork()ed child of the process that made the group.
  bool is_in_child() const { return process_.is_in_child(); }

  // ---- a name of older releases
  [[deprecated("gather_single")]] Work gather_into_tensor(const Tensor& out, const Tensor& in, int root,
                                                          const CallOptions& o = {}) {
    return gather_single(out, in, root, o);
  }

 private:
  friend class Coalescing;
  friend symm::SymmGroup symm_group(ProcessGroup& group);
  Backend& backend_for(const char* op, const Tensor& tensor) const;
  Backend& backend_for(const CollectiveDef& def, const CollectiveCall& call) const;
  static int64_t collectives_made();  // by this thread, in all groups
  void refuse(CollectiveKind kind, std::string_view why);
  void arrive_monitored(int64_t number, std::chrono::milliseconds timeout);
  void watch_arrivals(int64_t number, std::chrono::milliseconds timeout, bool wait_all_ranks);
  void check_process() const;  // UsageError in a fork()ed child
  std::vector<std::shared_ptr<ProcessGroup>> lanes_so_far() const;
  void inspect(const CollectiveDef& def, const CollectiveCall& call) const;
  void inspect(CollectiveKind kind, Tensors inputs) const;
  void inspect(CollectiveKind kind, const Tensor& input) const { inspect(kind, {&input, 1}); }

  const ForkGuard process_;
  const std::string name_;
  const std::string key_;
  const int rank_;
  const std::vector<int> world_ranks_;
  const std::shared_ptr<Store> store_;
  Backend* cpu_ = nullptr;  // the host backend of backends_, for the fast path
  std::map<DeviceKind, std::shared_ptr<Backend>> backends_;
  std::atomic<bool> check_nan_{false};
  std::atomic<int64_t> splits_{0};
  std::atomic<int64_t> shrinks_{0};
  std::mutex monitored_mutex_;  // one monitored_barrier at a time
  MonitoredBarriers monitored_;
  std::atomic<bool> coalescing_{false};
  LaneMaker lane_maker_;
  mutable std::mutex lanes_mutex_;
  std::vector<std::shared_ptr<ProcessGroup>> lanes_;  // without this group
  std::mutex symm_mutex_;
  symm::SymmGroup symm_;  // created on first use
};

}  // namespace tutti::comm
