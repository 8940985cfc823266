#include "tutti/tensor/dlpack.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "tutti/core/number.h"
#include "tutti/runtime/device_backend.h"
#include "tutti/tensor/device_copy.h"

namespace tutti {
namespace {

using namespace dlpack;

struct DTypeRow {
  DType dtype;
  DLDataTypeCode code;
  uint8_t bits;
};
constexpr DTypeRow kDTypes[kNumDTypes] = {
    {DType::f64, kDLFloat, 64},
    {DType::f32, kDLFloat, 32},
    {DType::bf16, kDLBfloat, 16},
    {DType::f16, kDLFloat, 16},
    {DType::f8e4m3fn, kDLFloat8_e4m3fn, 8},
    {DType::f8e5m2, kDLFloat8_e5m2, 8},
    {DType::i64, kDLInt, 64},
    {DType::i32, kDLInt, 32},
    {DType::i16, kDLInt, 16},
    {DType::i8, kDLInt, 8},
    {DType::u8, kDLUInt, 8},
    {DType::boolean, kDLBool, 8},
};

DLDataType export_dtype(DType dtype) {
  const DTypeRow& row = kDTypes[static_cast<int>(dtype)];
  return {row.code, row.bits, 1};
}

DType import_dtype(DLDataType type) {
  TUTTI_CHECK(type.lanes == 1, "from_dlpack: a dtype of {} lanes; only 1 is known", type.lanes);
  for (const DTypeRow& row : kDTypes) {
    if (row.code == type.code && row.bits == type.bits) return row.dtype;
  }
  throw UsageError(fmt::format("from_dlpack: no dtype for code {} of {} bits", type.code, type.bits));
}

DLDevice export_device(Device device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return {kDLCPU, 0};
    case DeviceKind::mock:
      return {kDLExtDev, device.index};
    case DeviceKind::cuda:
      return {kDLCUDA, device.index};
  }
  throw InternalError("export_device: no such kind");
}

Device import_device(DLDevice device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost)
    return kCpu;
  TUTTI_CHECK(
      device.device_type == kDLExtDev || device.device_type == kDLCUDA,
      "from_dlpack: device type {} is not known here; known: 1 (cpu), 2 (cuda), 3 and 11 (pinned), 12 (extension)",
      static_cast<int>(device.device_type));
  TUTTI_CHECK(device.device_id >= 0 && device.device_id <= std::numeric_limits<int16_t>::max(),
              "from_dlpack: device index {} does not exist", device.device_id);
  const Device result{device.device_type == kDLExtDev ? DeviceKind::mock : DeviceKind::cuda,
                      static_cast<int16_t>(device.device_id)};
  device_backend(result);  // exists
  return result;
}

// What an exported structure points into. The structure comes first to be found from the deleter's argument.
template <class Managed>
struct Exported {
  Managed managed;
  Tensor tensor;
  Extents sizes, strides;
};

template <class Managed>
Managed* export_tensor(const Tensor& t, const DlpackOptions& options) {
  TUTTI_CHECK(t.defined(), "to_dlpack: the tensor is undefined");
  auto owner = std::make_unique<Exported<Managed>>();
  owner->sizes = concrete(t.sizes());
  owner->tensor = options.copy ? clone_to(t, t.device()) : t;
  owner->strides = owner->tensor.strides();
  owner->managed = {};
  owner->managed.dl_tensor = {.data = t.numel() == 0 ? nullptr : owner->tensor.raw_data(),
                              .device = export_device(t.device()),
                              .ndim = t.ndim(),
                              .dtype = export_dtype(t.dtype()),
                              .shape = owner->sizes.begin(),
                              .strides = owner->strides.begin(),
                              .byte_offset = 0};
  owner->managed.manager_ctx = owner.get();
  owner->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &owner.release()->managed;
}

template <class Managed>
struct CallDeleter {
  void operator()(Managed* managed) const {
    if (managed->deleter) managed->deleter(managed);
  }
};

template <class Managed>
Tensor import_tensor(std::unique_ptr<Managed, CallDeleter<Managed>> owner, bool read_only) {
  const DLTensor& source = owner->dl_tensor;
  const DType dtype = import_dtype(source.dtype);
  const Device device = import_device(source.device);
  TUTTI_CHECK(source.ndim >= 0 && source.ndim <= kMaxDims, "from_dlpack: {} dimensions; a tensor has at most {}",
              source.ndim, kMaxDims);
  TUTTI_CHECK(source.ndim == 0 || source.shape != nullptr, "from_dlpack: {} dimensions without a shape", source.ndim);
  const Extents sizes(std::span<const int64_t>(source.shape, static_cast<size_t>(source.ndim)));
  for (int64_t s : sizes) TUTTI_CHECK(s >= 0, "from_dlpack: sizes {} hold a negative size", sizes);
  const Extents strides = source.strides == nullptr
                              ? contiguous_strides(sizes)
                              : Extents(std::span<const int64_t>(source.strides, static_cast<size_t>(source.ndim)));
  const int64_t item = itemsize(dtype);
  // The storage covers what the elements touch; strides may be negative, so the first element may lie inside.
  int64_t before = 0, after = 0;
  if (numel_of(sizes) > 0) {
    after = 1;
    for (int d = 0; d < sizes.ndim(); ++d) {
      const int64_t reach = checked_mul(sizes[d] - 1, strides[d]);
      int64_t& end = reach < 0 ? before : after;
      end = checked_add(end, reach < 0 ? checked_neg(reach) : reach);
    }
    TUTTI_CHECK(source.data != nullptr, "from_dlpack: null data for sizes {} of {}", sizes, name_of(dtype));
  }
  const uintptr_t first = reinterpret_cast<uintptr_t>(source.data) + source.byte_offset;
  TUTTI_CHECK(first % static_cast<uintptr_t>(item) == 0, "from_dlpack: the data of {} is not aligned to its {} bytes",
              name_of(dtype), item);
  const int64_t nbytes = checked_mul(checked_add(before, after), item);
  void* base = source.data == nullptr ? nullptr : reinterpret_cast<char*>(first) - before * item;
  // The shared pointer makes the deleter copyable, as the storage wants it.
  std::shared_ptr<Managed> held = std::move(owner);
  StorageRef storage = StorageRef::adopt(Storage::wrap(base, nbytes, device, [held] {}));
  if (read_only) storage->set_read_only();
  return Tensor::over(std::move(storage), sizes, strides, before, dtype);
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& t, const DlpackOptions& options) {
  auto* managed = export_tensor<DLManagedTensorVersioned>(t, options);
  managed->version = {kMajorVersion, kMinorVersion};
  const bool read_only = t.storage()->is_read_only() && !options.copy;
  managed->flags = (read_only ? kFlagReadOnly : 0) | (options.copy ? kFlagIsCopied : 0);
  return managed;
}

DLManagedTensor* to_dlpack_legacy(const Tensor& t, const DlpackOptions& options) {
  TUTTI_CHECK(!t.defined() || options.copy || !t.storage()->is_read_only(),
              "to_dlpack_legacy: {} is read-only, which DLPack before 1.0 cannot say; export a copy (.copy = true)",
              describe(t));
  return export_tensor<DLManagedTensor>(t, options);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  TUTTI_CHECK(managed != nullptr, "from_dlpack: a null pointer");
  std::unique_ptr<DLManagedTensorVersioned, CallDeleter<DLManagedTensorVersioned>> owner(managed);
  // If the major version differs, only the version and the deleter may be touched.
  TUTTI_CHECK(
      managed->version.major == kMajorVersion,
      "from_dlpack: the structure has DLPack version {}.{}, this library knows {}.{}; major versions must agree",
      managed->version.major, managed->version.minor, kMajorVersion, kMinorVersion);
  const bool read_only = (managed->flags & kFlagReadOnly) != 0;
  return import_tensor(std::move(owner), read_only);
}

Tensor from_dlpack(DLManagedTensor* managed) {
  TUTTI_CHECK(managed != nullptr, "from_dlpack: a null pointer");
  return import_tensor(std::unique_ptr<DLManagedTensor, CallDeleter<DLManagedTensor>>(managed), false);
}

}  // namespace tutti
