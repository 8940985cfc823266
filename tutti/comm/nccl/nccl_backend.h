// NcclBackend: the collectives of one group on NVIDIA (NCCL) or AMD (RCCL) GPUs. The library is opened at run time.
//
// Tensors must be dense and on the group's device. Data is moved as bytes, so every dtype is supported; can() tells
// what can be reduced. Messages have no tags, and receives must name the sender.
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

  Work run(const CollectiveCall& call) override;
  Work send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) override;
  Work recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) override;
  Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options) override;

  void abort(std::string_view reason) override { comm_->abort(reason); }
  std::string failure() const override { return comm_->failure(); }
  void set_timeout(std::chrono::milliseconds timeout) override { comm_->set_timeout(timeout); }
  std::chrono::milliseconds timeout() const override { return comm_->timeout(); }

 private:
  const NcclOptions& options() const { return comm_->options(); }
  // UsageError unless `t` is a dense tensor on the group's device (that may be written).
  void check_read(const char* op, const char* role, const Tensor& t) const;
  void check_write(const char* op, const char* role, const Tensor& t) const;
  void check_call(const CollectiveDef& def, const CollectiveCall& call) const;
  std::string why_not_reducible_here(ReduceKind kind, DType dtype) const;

  std::shared_ptr<NcclCommunicator> comm_;
  int architecture_ = 0;
  void* barrier_word_ = nullptr;  // on the device
};

}  // namespace tutti::comm
