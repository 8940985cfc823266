// Backend: an engine that carries out the collectives of one group on one kind of device.
//
// A ProcessGroup (process_group.h) holds one per device kind. TransportBackend implements everything over a Transport;
// engines with collectives of their own (NCCL) override those they provide. Calling a method that a backend does not override is
// a UsageError naming backend and method. Five methods also have the names of older releases: a backend may override either name
// and a caller may use either; each forwards to the other.
//
// Shapes: W is the group's size, n the number of elements of one rank; see docs/comm.md for each collective. Lists are in
// group-rank order. Tensors may have any strides; tensors that are written must not overlap themselves. Inputs are never written.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/call_record.h"
#include "tutti/comm/reduce_op.h"
#include "tutti/comm/work.h"
#include "tutti/core/device.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

struct CallOptions {
  bool async = false;  // return immediately; the Work tells when the call has ended
  std::optional<std::chrono::milliseconds> timeout = {};  // timeout of this call; not set: that of the group
  // A hash of what else the ranks must agree on, such as a plan by which they interpret the bytes; 0: nothing. Calls with other keys
  // do not match. Coalesced calls, messages and NCCL do not compare it.
  uint64_t agreement = 0;
};

using Tensors = std::span<const Tensor>;
using Splits = std::span<const int64_t>;

// Describes a call, to ask whether it is supported before making it.
struct CallQuery {
  CollectiveKind kind;
  DType dtype = DType::f32;
  ReduceKind reduce = ReduceKind::sum;
  Device device = kCpu;
  bool uneven = false;  // sizes differ between ranks
};
struct Answer {
  bool yes = true;
  std::string reason;  // why not
  explicit operator bool() const { return yes; }
};

struct PointToPoint {
  enum class Kind : uint8_t { isend, irecv };
  Kind kind;
  Tensor tensor;
  int peer;  // group rank
  uint32_t tag = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A rank of the group as messages name it: "rank 3 (pid 4711 on host7)", as far as that is known. Any thread.
  virtual std::string describe_rank(int rank) const { return "rank " + std::to_string(rank); }
  // Whether a correct call of this kind would succeed. Has no side effects. Any thread.
  virtual Answer can(const CallQuery& query) const = 0;

  virtual Work broadcast(const Tensor& tensor, int root, const CallOptions& options);
  virtual Work all_reduce(const Tensor& tensor, const ReduceOp& op, const CallOptions& options);
  virtual Work all_reduce_coalesced(Tensors tensors, const ReduceOp& op, const CallOptions& options);
  virtual Work reduce(const Tensor& tensor, int root, const ReduceOp& op, const CallOptions& options);
  virtual Work all_gather(Tensors outputs, const Tensor& input, const CallOptions& options);
  // outputs[i] is the list of W outputs of inputs[i]. Without an own one: all_gather() of each, started together.
  virtual Work all_gather_coalesced(std::span<const std::vector<Tensor>> outputs, Tensors inputs, const CallOptions& options);
  virtual Work gather(Tensors outputs, const Tensor& input, int root, const CallOptions& options);
  virtual Work scatter(const Tensor& output, Tensors inputs, int root, const CallOptions& options);
  virtual Work reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op, const CallOptions& options);
  virtual Work all_to_all(Tensors outputs, Tensors inputs, const CallOptions& options);
  virtual Work send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options);
  // peer == -1 receives from any rank; Work::source_rank() tells from which.
  virtual Work recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options);
  virtual Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options);
  virtual Work barrier(const CallOptions& options);

  // A backend overrides one name of each pair.
  virtual Work all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& options);
  virtual Work _allgather_base(const Tensor& output, const Tensor& input, const CallOptions& options);
  virtual Work reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& options);
  virtual Work _reduce_scatter_base(const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& options);
  // Splits count rows of dim 0; empty splits mean equal parts.
  virtual Work all_to_all_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                                 const CallOptions& options);
  virtual Work alltoall_base(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                             const CallOptions& options);
  virtual Work all_gather_single_coalesced(Tensors outputs, Tensors inputs, const CallOptions& options);
  virtual Work allgather_into_tensor_coalesced(Tensors outputs, Tensors inputs, const CallOptions& options);
  virtual Work reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& options);
  virtual Work reduce_scatter_tensor_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& options);

  // This rank does not make its present call of `kind`, because of `why`: the others, which make theirs, get a UsageError that says
  // so, and later calls of the ranks meet again. Engines that do not compare calls do nothing.
  virtual void refuse(CollectiveKind /*kind*/, std::string_view /*why*/) {}

  // Ends the group on every rank: waiting calls throw PeerError with `reason`. Any thread.
  virtual void abort(std::string_view reason) = 0;
  // Why the group has failed; "" while it works. Any thread.
  virtual std::string failure() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  // Registers memory of all ranks that this process can read: bases[p] is its address of rank p's memory. Collective. Returns
  // the number of the region, or -1 when the engine does not use regions.
  virtual int64_t add_region(const std::vector<std::byte*>&, int64_t /*bytes*/) { return -1; }
  virtual void remove_region(int64_t) {}

 protected:
  [[noreturn]] void unsupported(const char* method) const;
};

}  // namespace tutti::comm
