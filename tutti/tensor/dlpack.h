// Exchange of tensors with other libraries through DLPack, without copying.
//
// An exported structure holds its tensor until its deleter is called. An imported one is held by the tensor's storage:
// its deleter is called when the last tensor on it is gone. Gradient state does not travel. Work on a device must be
// done, or be ordered by the streams of both libraries, before the other side reads.
// Dtypes: all twelve. Devices: cpu, mock (as the extension device), cuda when a backend exists; pinned host memory is
// imported as cpu.
#pragma once

#include "tutti/tensor/dlpack_abi.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct DlpackOptions {
  bool copy = false;  // export a copy that nobody else sees, flagged IS_COPIED
};

// The structure of DLPack 1.1. Read-only storage is flagged READ_ONLY. UsageError when the tensor is undefined or has
// symbolic sizes.
dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& t, const DlpackOptions& options = {});
// The structure before 1.0, for libraries that know no other. UsageError also for read-only storage, which it cannot
// say.
dlpack::DLManagedTensor* to_dlpack_legacy(const Tensor& t, const DlpackOptions& options = {});

// A tensor on the memory of `managed`, which is taken over in every case: after an error too its deleter has been
// called. A structure flagged READ_ONLY gives read-only storage. UsageError for another major version, an unknown dtype
// or device, more dims than tensors have, negative sizes, null or misaligned data.
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);
Tensor from_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace tutti
