// The C structures of DLPack 1.1. Layouts, values and names are those of the standard; they are in a namespace, so that
// the DLPack header of another library can be included as well. Cast pointers between the two. Source: the DLPack
// specification, "C API", versions 0.8 (DLManagedTensor) and 1.1 (DLManagedTensorVersioned).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::dlpack {

inline constexpr uint32_t kMajorVersion = 1, kMinorVersion = 1;

struct DLPackVersion {
  uint32_t major, minor;
};

enum DLDeviceType : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,   // pinned host memory
  kDLROCMHost = 11,  // pinned host memory
  kDLExtDev = 12,    // extension device: the mock
  kDLCUDAManaged = 13,
};

struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
};

enum DLDataTypeCode : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12,
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null means row-major
  uint64_t byte_offset;
};

// The structure before 1.0, without version and flags.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};

inline constexpr uint64_t kFlagReadOnly = 1, kFlagIsCopied = 2;

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  // may be null
  uint64_t flags;
  DLTensor dl_tensor;
};

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, flags) == 24);

}  // namespace tutti::dlpack
