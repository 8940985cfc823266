#include "tutti/io/npy.h"

#include <algorithm>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/npy_header.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

Extents column_major_strides(const Extents& shape) {
  Extents strides;
  int64_t stride = 1;
  for (const int64_t size : shape) {
    strides.push_back(stride);
    stride *= std::max<int64_t>(size, 1);
  }
  return strides;
}

void reverse_items(std::byte* data, int64_t count, int64_t item_nbytes) {
  for (int64_t i = 0; i < count; ++i) std::reverse(data + i * item_nbytes, data + (i + 1) * item_nbytes);
}

}  // namespace

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  const io::NpyHeader header = io::parse_npy_header(bytes, name);
  const Tensor tensor = header.fortran_order
                            ? Tensor::empty_strided(header.shape, column_major_strides(header.shape), header.dtype)
                            : Tensor::empty(header.shape, header.dtype);
  if (tensor.numel() == 0) return tensor;
  auto* data = static_cast<std::byte*>(tensor.raw_data());
  std::memcpy(data, bytes.data() + header.data_start, static_cast<size_t>(tensor.nbytes()));
  if (header.swapped) reverse_items(data, tensor.numel(), itemsize(header.dtype));
  // A bool must be 0 or 1 for the compiler's sake; NumPy reads any other byte as true.
  if (header.dtype == DType::boolean) {
    std::transform(data, data + tensor.numel(), data, [](std::byte b) { return std::byte{b != std::byte{0}}; });
  }
  return tensor;
}

Tensor read_npy(const std::string& path) {
  const MappedFile file(path);
  return parse_npy(file.bytes(), path);
}

void write_npy(const std::string& path, const Tensor& tensor) {
  TUTTI_CHECK(tensor.defined() && tensor.device().kind == DeviceKind::cpu,
              "write_npy '{}': the tensor is {}, expected one on the cpu", path, describe(tensor));
  const std::string header = io::npy_header_bytes(tensor.dtype(), tensor.extents());
  const Tensor dense = to_contiguous(tensor);
  AtomicFile file(path);
  file.write(header);
  file.write(dense.raw_data(), static_cast<size_t>(dense.nbytes()));
  file.commit();
}

}  // namespace tutti
