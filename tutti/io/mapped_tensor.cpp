#include "tutti/io/mapped_tensor.h"

#include <cstring>

#include "tutti/tensor/tensor.h"

namespace tutti::io {

Tensor mapped_tensor(const std::shared_ptr<const MappedFile>& file, std::span<const std::byte> bytes,
                     const Extents& sizes, DType dtype) {
  if (bytes.empty() || reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(itemsize(dtype)) != 0) {
    const Tensor copy = Tensor::empty(sizes, dtype);
    if (!bytes.empty()) std::memcpy(copy.raw_data(), bytes.data(), bytes.size());
    return copy;
  }
  // The release function holds the mapping; the storage refuses writes before the pages would.
  StorageRef storage =
      StorageRef::adopt(Storage::wrap(const_cast<std::byte*>(bytes.data()), std::ssize(bytes), kCpu, [file] {}));
  storage->set_read_only();
  return Tensor::over(std::move(storage), sizes, contiguous_strides(sizes), 0, dtype);
}

}  // namespace tutti::io
