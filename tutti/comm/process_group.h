// ProcessGroup: some ranks of a job that make collectives together.
//
// A group holds one backend per device kind and sends each call to that of its tensors. W is the group's size, r this
// rank's number in it; shapes and results of each call are in docs/comm.md. Every member must make the same calls in the
// same order; a call that does not fit is a UsageError on all ranks, naming two of them and the field. A peer that dies,
// leaves or is late is a PeerError or TimeoutError on all others, naming it, and ends the group.
//
// Any thread of the rank may call; calls of one group happen in the order they are made.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/backend.h"
#include "tutti/comm/store/store.h"
#include "tutti/comm/symm/group.h"

namespace tutti::comm {

class Coalescing;
class ProcessGroup;
symm::SymmGroup symm_group(ProcessGroup& group);  // symmetric_buffer.h

// How a group is made.
struct GroupOptions {
  std::string name;         // "": one is made up; equal on all members
  std::string description;  // for people
  // Of host tensors: "": the best there is for the members; else see known_transports(). With GPUs by device kind:
  // "cpu:shm,cuda:nccl".
  std::string transport;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of each call, and of making the group
  // Look for NaN and infinity in the inputs of every call (recorder/finite_check.h); absent: TUTTI_COMM_CHECK_NAN.
  std::optional<bool> check_nan = {};
};

struct Health {
  bool ok = true;
  std::string failure;  // why not
};

// What a rank knows of the monitored barriers of its group, numbered from 1.
struct MonitoredBarriers {
  int64_t made = 0;              // by this rank
  std::vector<int64_t> reached;  // on rank 0: the last one that each rank has come to
  int64_t told = 0;              // on the others: the last one whose outcome rank 0 has told,
  int64_t first_missing = -1;    // and the rank that did not come to it
};

class ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  // For those who bring their own backends; init_process_group, new_group and split make groups with transports.
  // `world_ranks` are the members in group-rank order; `key` is unique among all groups of the job.
  ProcessGroup(std::string name, std::string key, int rank, std::vector<int> world_ranks, std::shared_ptr<Store> store);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return name_; }
  const std::string& key() const { return key_; }
  std::string description;
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank() const { return world_ranks_[static_cast<size_t>(rank_)]; }
  // The group rank of a world rank; UsageError when it is no member.
  int group_rank_of(int world_rank) const;
  const std::shared_ptr<Store>& store() const { return store_; }

  // ---- backends
  void set_backend(DeviceKind kind, std::shared_ptr<Backend> backend);
  // UsageError naming the device kind when the group has none for it.
  Backend& backend(DeviceKind kind) const;
  Answer can(const CallQuery& query) const;

  // ---- collectives
  Work broadcast(const Tensor& tensor, int root, const CallOptions& options = {});
  Work all_reduce(const Tensor& tensor, const ReduceOp& op = {}, const CallOptions& options = {});
  Work all_reduce_coalesced(Tensors tensors, const ReduceOp& op = {}, const CallOptions& options = {});
  // The same for values that are no tensor; returns when done.
  template <class T>
  void all_reduce_values(std::span<T> values, const ReduceOp& op = {}) {
    all_reduce(Tensor::from_memory(values.data(), {static_cast<int64_t>(values.size())}, dtype_of<T>, {}), op);
  }
  Work reduce(const Tensor& tensor, int root, const ReduceOp& op = {}, const CallOptions& options = {});
  Work all_gather(Tensors outputs, const Tensor& input, const CallOptions& options = {});
  // The same with outputs of different sizes, none excluded; outputs[i] has the size of rank i's input.
  Work all_gather_v(Tensors outputs, const Tensor& input, const CallOptions& options = {});
  Work all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& options = {});
  Work all_gather_single_coalesced(Tensors outputs, Tensors inputs, const CallOptions& options = {});
  // outputs[i] is the list of W outputs of inputs[i], as all_gather takes it.
  Work all_gather_coalesced(std::span<const std::vector<Tensor>> outputs, Tensors inputs, const CallOptions& options = {});
  Work gather(Tensors outputs, const Tensor& input, int root, const CallOptions& options = {});
  // `output` is looked at on root only; dim 0 holds the W inputs one after another.
  Work gather_single(const Tensor& output, const Tensor& input, int root, const CallOptions& options = {});
  Work scatter(const Tensor& output, Tensors inputs, int root, const CallOptions& options = {});
  Work reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op = {}, const CallOptions& options = {});
  Work reduce_scatter_v(const Tensor& output, Tensors inputs, const ReduceOp& op = {}, const CallOptions& options = {});
  Work reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op = {}, const CallOptions& options = {});
  Work reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op = {}, const CallOptions& options = {});
  Work all_to_all(Tensors outputs, Tensors inputs, const CallOptions& options = {});
  Work all_to_all_single(const Tensor& output, const Tensor& input, const CallOptions& options = {});
  // Splits of dim 0, in rows; empty: equal parts.
  Work all_to_all_v_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                           const CallOptions& options = {});
  Work barrier(const CallOptions& options = {});
  // Rank 0 waits for everybody, at most `timeout`, and names the ranks that did not come: the first one, or all of them
  // (`wait_all_ranks`). The other ranks throw as well, those that come later too: call n of one rank meets call n of the
  // others, so a barrier that failed does not disturb the next.
  void monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks = false);

  // ---- messages; tags below 2^31
  Work send(const Tensor& tensor, int peer, uint32_t tag = 0, const CallOptions& options = {});
  Work recv(const Tensor& tensor, int peer, uint32_t tag = 0, const CallOptions& options = {});
  // Takes a message from any rank; the Work's source_rank() tells which.
  Work recv_any(const Tensor& tensor, uint32_t tag = 0, const CallOptions& options = {.async = true});
  Work isend(const Tensor& tensor, int peer, uint32_t tag = 0) { return send(tensor, peer, tag, {.async = true}); }
  Work irecv(const Tensor& tensor, int peer, uint32_t tag = 0) { return recv(tensor, peer, tag, {.async = true}); }
  // All at once: no order among the operations can make them wait for each other.
  Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options = {.async = true});

  // ---- bytes; nothing is decoded
  std::string broadcast_bytes(const std::string& bytes, int root);
  std::vector<std::string> all_gather_bytes(const std::string& bytes);
  // Empty but on root.
  std::vector<std::string> gather_bytes(const std::string& bytes, int root);
  // `parts` is looked at on root only: one per rank.
  std::string scatter_bytes(const std::vector<std::string>& parts, int root);
  void send_bytes(const std::string& bytes, int peer, uint32_t tag = 0);
  std::string recv_bytes(int peer, uint32_t tag = 0);

  // ---- groups; each returns this rank's new group, null for a rank that is in none
  // Every member of this group calls it; `ranks` are group ranks of this group, in the order of the new one. Members may
  // give different lists, which must then be disjoint (one split into many). UsageError on all members, naming two of
  // them, when lists overlap or those of one list differ in name or transport; else errors as new_group's.
  std::shared_ptr<ProcessGroup> split(const std::vector<int>& ranks, const GroupOptions& options = {});

  // The group without `failed_ranks` (group ranks), the others in their order. All of these call it, and nobody else: after
  // a PeerError, when this group has ended, or before. They meet in the store, which must have survived. UsageError on all
  // when their lists differ; TimeoutError naming who did not call; PeerError when one more dies.
  std::shared_ptr<ProcessGroup> shrink(std::vector<int> failed_ranks, const GroupOptions& options = {});

  // ---- failing
  // Ends the group on every rank: who waits, or calls later, throws PeerError with `reason`. Any thread.
  void abort(std::string_view reason);
  Health health() const;
  // Of calls made from then on that have none of their own. UsageError when it is not more than 0.
  void set_timeout(std::chrono::milliseconds timeout);
  void set_check_nan(bool on) { check_nan_ = on; }

  // ---- names of older releases
  [[deprecated("all_reduce")]] Work allreduce(const Tensor& t, const ReduceOp& op = {}, const CallOptions& o = {}) { return all_reduce(t, op, o); }
  [[deprecated("all_gather")]] Work allgather(Tensors out, const Tensor& in, const CallOptions& o = {}) { return all_gather(out, in, o); }
  [[deprecated("all_gather_single")]] Work _allgather_base(const Tensor& out, const Tensor& in, const CallOptions& o = {}) { return all_gather_single(out, in, o); }
  [[deprecated("all_gather_single")]] Work _all_gather_base(const Tensor& out, const Tensor& in, const CallOptions& o = {}) { return all_gather_single(out, in, o); }
  [[deprecated("all_gather_single")]] Work all_gather_into_tensor(const Tensor& out, const Tensor& in, const CallOptions& o = {}) { return all_gather_single(out, in, o); }
  [[deprecated("all_gather_single_coalesced")]] Work allgather_into_tensor_coalesced(Tensors out, Tensors in, const CallOptions& o = {}) { return all_gather_single_coalesced(out, in, o); }
  [[deprecated("gather_single")]] Work gather_into_tensor(const Tensor& out, const Tensor& in, int root, const CallOptions& o = {}) { return gather_single(out, in, root, o); }
  [[deprecated("reduce_scatter_single")]] Work _reduce_scatter_base(const Tensor& out, const Tensor& in, const ReduceOp& op = {}, const CallOptions& o = {}) { return reduce_scatter_single(out, in, op, o); }
  [[deprecated("reduce_scatter_single")]] Work reduce_scatter_tensor(const Tensor& out, const Tensor& in, const ReduceOp& op = {}, const CallOptions& o = {}) { return reduce_scatter_single(out, in, op, o); }
  [[deprecated("reduce_scatter_single_coalesced")]] Work reduce_scatter_tensor_coalesced(Tensors out, Tensors in, const ReduceOp& op = {}, const CallOptions& o = {}) { return reduce_scatter_single_coalesced(out, in, op, o); }
  [[deprecated("all_reduce_coalesced")]] Work allreduce_coalesced(Tensors t, const ReduceOp& op = {}, const CallOptions& o = {}) { return all_reduce_coalesced(t, op, o); }
  [[deprecated("all_to_all")]] Work alltoall(Tensors out, Tensors in, const CallOptions& o = {}) { return all_to_all(out, in, o); }
  [[deprecated("all_to_all_v_single")]] Work alltoall_base(const Tensor& out, const Tensor& in, Splits out_splits, Splits in_splits, const CallOptions& o = {}) { return all_to_all_v_single(out, in, out_splits, in_splits, o); }

 private:
  friend class Coalescing;
  friend symm::SymmGroup symm_group(ProcessGroup& group);
  Backend& backend_for(const char* op, const Tensor& tensor) const;
  Backend& backend_for(const char* op, Tensors tensors) const;
  void arrive_monitored(int64_t number, std::chrono::milliseconds timeout);
  void watch_arrivals(int64_t number, std::chrono::milliseconds timeout, bool wait_all_ranks);
  void inspect(CollectiveKind kind, Tensors inputs) const;
  void inspect(CollectiveKind kind, const Tensor& input) const { inspect(kind, {&input, 1}); }

  const std::string name_;
  const std::string key_;
  const int rank_;
  const std::vector<int> world_ranks_;
  const std::shared_ptr<Store> store_;
  Backend* cpu_ = nullptr;  // of backends_, for the short way
  std::map<DeviceKind, std::shared_ptr<Backend>> backends_;
  std::atomic<bool> check_nan_{false};
  std::atomic<int64_t> splits_{0};
  std::atomic<int64_t> shrinks_{0};
  std::mutex monitored_mutex_;  // one monitored_barrier at a time
  MonitoredBarriers monitored_;
  std::atomic<bool> coalescing_{false};
  std::mutex symm_mutex_;
  symm::SymmGroup symm_;  // made when first asked for
};

}  // namespace tutti::comm
