// Backend: an engine that carries out the collectives of one group on one kind of device.
//
// A ProcessGroup (process_group.h) holds one per device kind. TransportBackend implements everything over a Transport;
// engines with collectives of their own (NCCL) start those. All collectives arrive in one method, run(), as calls of
// rows of the table (collective_def.h); a row that a backend cannot carry out is a UsageError naming both.
//
// Shapes: W is the group's size, n the number of elements of one rank; see docs/comm.md for each collective. Lists are
// in group-rank order. Tensors may have any strides; tensors that are written must not overlap themselves. Inputs are
// never written.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/named_collectives.h"

namespace tutti::comm {

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

class Backend : public NamedCollectives<Backend> {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A rank of the group as messages name it: "rank 3 (pid 4711 on host7)", as far as that is known. Any thread.
  virtual std::string describe_rank(int rank) const { return "rank " + std::to_string(rank); }
  // Whether a correct call of this kind would succeed. Has no side effects. Any thread.
  virtual Answer can(const CallQuery& query) const = 0;

  // Whether calls that travel at the same time, each over a backend of its own, take less time than one after the other
  // (ProcessGroup::lanes()).
  virtual bool gains_by_lanes() const { return false; }

  // Carries out a call of any collective (collective_def.h); the named methods make one of their arguments. A backend
  // that does not override it supports none.
  virtual Work run(const CollectiveCall& call);

  virtual Work send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options);
  // peer == -1 receives from any rank; Work::source_rank() tells from which.
  virtual Work recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options);
  virtual Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options);

  // This rank does not make its present call of `kind`, because of `why`: the others, which make theirs, get a
  // UsageError that says so, and later calls of the ranks meet again. Engines that do not compare calls do nothing.
  virtual void refuse(CollectiveKind /*kind*/, std::string_view /*why*/) {}

  // Ends the group on every rank: waiting calls throw PeerError with `reason`. Any thread.
  virtual void abort(std::string_view reason) = 0;
  // Why the group has failed; "" while it works. Any thread.
  virtual std::string failure() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // The default of calls, as it is now. Any thread.
  virtual std::chrono::milliseconds timeout() const = 0;

  // Registers memory of all ranks that this process can read: bases[p] is its address of rank p's memory. Collective.
  // Returns the number of the region, or -1 when the engine does not use regions.
  virtual int64_t add_region(const std::vector<std::byte*>&, int64_t /*bytes*/) { return -1; }
  virtual void remove_region(int64_t) {}

 protected:
  [[noreturn]] void unsupported(std::string_view method) const;
};

}  // namespace tutti::comm
