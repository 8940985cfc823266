// Exchange of tensors with other libraries through DLPack, without copying.
//
// An exported structure keeps its tensor alive until its deleter is called. An imported one is owned by the tensor's
// storage: its deleter is called when the last tensor on it is gone. Autograd state is not exchanged. Work on a device
// must be complete, or be ordered by the streams of both libraries, before the other side reads. Dtypes: all twelve.
// Devices: cpu, mock (as the extension device), cuda when a backend exists; pinned host memory is imported as cpu.
#pragma once

#include "tutti/tensor/dlpack_abi.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct DlpackOptions {
  bool copy = false;  // export a private copy, flagged IS_COPIED
};

// The structure of DLPack 1.1. Read-only storage is flagged READ_ONLY. UsageError when the tensor is undefined or has
// symbolic sizes.
dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& t, const DlpackOptions& options = {});
// The structure from before version 1.0, for libraries that only know that one. UsageError also for read-only storage,
// which the structure cannot express.
dlpack::DLManagedTensor* to_dlpack_legacy(const Tensor& t, const DlpackOptions& options = {});

// A tensor on the memory of `managed`. Ownership is taken in every case; if this throws, the deleter has been called.
// A structure flagged READ_ONLY gives read-only storage. UsageError for another major version, an unknown dtype
// or device, more than kMaxDims dims, negative sizes, null or misaligned data.
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);
Tensor from_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace tutti
