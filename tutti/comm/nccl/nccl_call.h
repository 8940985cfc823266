// NcclCall: the Work of one call on an NcclCommunicator.
#pragma once

#include "tutti/comm/nccl/nccl_communicator.h"

namespace tutti::comm {

class NcclCall final : public WorkState {
 public:
  NcclCall(std::shared_ptr<NcclCommunicator> owner, CallRecord record, GpuApi::Event event, std::vector<Tensor> tensors,
           size_t first_output, Clock::time_point deadline, std::chrono::milliseconds timeout, uint64_t recorded);
  ~NcclCall() override;

  bool advance() override;
  bool wait_for(std::chrono::milliseconds limit) override;
  WorkStatus status() const override { return status_.load(std::memory_order_acquire); }
  std::exception_ptr exception() const override;
  void on_end(std::function<void()> callback) override;
  std::vector<Tensor> result() const override;

 private:
  void end(WorkStatus status, std::exception_ptr failure);

  const std::shared_ptr<NcclCommunicator> owner_;
  const CallRecord record_;
  const GpuApi::Event event_;
  const size_t first_output_;
  const Clock::time_point deadline_;
  const std::chrono::milliseconds timeout_;
  const uint64_t recorded_;
  mutable std::mutex mutex_;
  std::vector<Tensor> tensors_;
  std::vector<std::function<void()>> callbacks_;
  std::exception_ptr failure_;
  std::atomic<WorkStatus> status_{WorkStatus::in_progress};
};

}  // namespace tutti::comm
