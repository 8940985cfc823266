// NcclBackend: the collectives of one group on NVIDIA (NCCL) or AMD (RCCL) GPUs. The library is opened at run time.
//
// Tensors must be dense and on the group's device. Data is moved as bytes, so every dtype is supported; can() tells what can be
// reduced. Messages have no tags, and receives must name the sender.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/nccl/nccl_communicator.h"

namespace tutti::comm {

class NcclBackend final : public Backend {
 public:
  // Blocks until all ranks of the group have joined; see NcclCommunicator.
  explicit NcclBackend(NcclOptions options);
  ~NcclBackend() override;

  std::string name() const override { return "nccl"; }
  int rank() const override { return options().rank; }
  int size() const override { return options().size; }
  Answer can(const CallQuery& query) const override;

  Work broadcast(const Tensor& tensor, int root, const CallOptions& call) override;
  Work all_reduce(const Tensor& tensor, const ReduceOp& op, const CallOptions& call) override;
  Work all_reduce_coalesced(Tensors tensors, const ReduceOp& op, const CallOptions& call) override;
  Work reduce(const Tensor& tensor, int root, const ReduceOp& op, const CallOptions& call) override;
  Work all_gather(Tensors outputs, const Tensor& input, const CallOptions& call) override;
  Work gather(Tensors outputs, const Tensor& input, int root, const CallOptions& call) override;
  Work scatter(const Tensor& output, Tensors inputs, int root, const CallOptions& call) override;
  Work reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op, const CallOptions& call) override;
  Work all_to_all(Tensors outputs, Tensors inputs, const CallOptions& call) override;
  Work send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& call) override;
  Work recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& call) override;
  Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& call) override;
  // The host waits, too.
  Work barrier(const CallOptions& call) override;
  Work all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& call) override;
  Work reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& call) override;
  Work all_to_all_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                         const CallOptions& call) override;
  Work all_gather_single_coalesced(Tensors outputs, Tensors inputs, const CallOptions& call) override;
  Work reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& call) override;

  void abort(std::string_view reason) override { comm_->abort(reason); }
  std::string failure() const override { return comm_->failure(); }
  void set_timeout(std::chrono::milliseconds timeout) override { comm_->set_timeout(timeout); }

 private:
  const NcclOptions& options() const { return comm_->options(); }
  // UsageError unless `t` is a dense tensor on the group's device (that may be written).
  void check_read(const char* op, const char* role, const Tensor& t) const;
  void check_write(const char* op, const char* role, const Tensor& t) const;
  void check_reducible(const char* op, const ReduceOp& reduce, DType dtype) const;
  std::string why_not_reducible_here(ReduceKind kind, DType dtype) const;
  Work all_gather_pairs(const char* op, CollectiveKind kind, Tensors outputs, Tensors inputs, const CallOptions& call);
  Work reduce_scatter_pairs(const char* op, CollectiveKind kind, Tensors outputs, Tensors inputs, const ReduceOp& reduce,
                            const CallOptions& call);
  Work all_reduce_list(const char* op, CollectiveKind kind, Tensors tensors, const ReduceOp& reduce, const CallOptions& call);

  std::shared_ptr<NcclCommunicator> comm_;
  int architecture_ = 0;
  void* barrier_word_ = nullptr;  // on the device
};

// The op of a reduction for the calls of one launch, whatever their dtypes; made and released around them.
class NcclReduction {
 public:
  NcclReduction(const NcclCommunicator::Launch& on, const ReduceOp& reduce) : on_(on), reduce_(reduce) {}
  ~NcclReduction();
  NcclReduction(const NcclReduction&) = delete;
  NcclReduction& operator=(const NcclReduction&) = delete;
  int op(DType dtype);

 private:
  const NcclCommunicator::Launch& on_;
  const ReduceOp reduce_;
  std::vector<std::pair<DType, int>> made_;
};

}  // namespace tutti::comm
