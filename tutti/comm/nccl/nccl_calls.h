// The calls of NCCL that carry out a call of a collective.
#pragma once

#include <utility>
#include <vector>

#include "tutti/comm/collective_def.h"
#include "tutti/comm/nccl/nccl_communicator.h"

namespace tutti::comm {

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

// Why NCCL cannot carry out a collective with any arguments; "" when it can.
std::string why_not_on_gpus(const CollectiveDef& def);
// Makes the calls for `part`, which is one of `def`. `word` is memory on the device for calls without tensors.
void launch_nccl(const CollectiveDef& def, const CallPart& part, const NcclCommunicator::Launch& on,
                 NcclReduction& reduction, void* word);
void nccl_send(const NcclCommunicator::Launch& on, const void* data, int64_t bytes, int peer);
void nccl_recv(const NcclCommunicator::Launch& on, void* data, int64_t bytes, int peer);

}  // namespace tutti::comm
