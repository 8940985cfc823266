#include "tutti/symm/symmetric_tensor.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/symm/allocation_record.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm::symm {

Tensor SymmetricTensor::allocate(const Extents& sizes, DType dtype, Device device, const AllocationOptions& options) {
  return empty_symm(sizes, dtype, device, options);
}

std::string SymmetricTensor::validate(const Tensor& local) {
  if (!local.defined()) return "the tensor is undefined";
  const auto allocation = find_allocation(local);
  if (!allocation)
    return fmt::format("{} is not in symmetric memory; make it with SymmetricTensor::allocate", describe(local));
  if (local.device() != allocation->device) {
    return fmt::format("{} is on another device than its memory ({})", describe(local), to_string(allocation->device));
  }
  int64_t last = 0;
  for (int d = 0; d < local.ndim(); ++d) last += std::max<int64_t>(local.extents()[d] - 1, 0) * local.strides()[d];
  const int64_t begin = static_cast<const std::byte*>(local.raw_data()) - allocation->data();
  const int64_t end = begin + (local.numel() == 0 ? 0 : (last + 1) * itemsize(local.dtype()));
  if (end > allocation->data_bytes) {
    return fmt::format("{} reaches byte {} of an allocation of {} bytes", describe(local), end, allocation->data_bytes);
  }
  if (begin % itemsize(local.dtype()) != 0)
    return fmt::format("{} begins at byte {}, no place for its elements", describe(local), begin);
  return "";
}

SymmetricTensor::SymmetricTensor(Tensor local, SymmGroup group) : local_(std::move(local)), group_(std::move(group)) {
  const std::string reason = validate(local_);
  TUTTI_CHECK(reason.empty(), "SymmetricTensor: {}", reason);
  TUTTI_CHECK(group_, "SymmetricTensor: no group is given");
}

std::string SymmetricTensor::title(const std::string& tag) const {
  return tag.empty() ? "SymmetricTensor" : fmt::format("SymmetricTensor '{}'", tag);
}

const SymmHandle& SymmetricTensor::handle() const {
  TUTTI_CHECK(handle_ != nullptr, "SymmetricTensor: call setup_remote_handles() on all ranks first");
  return *handle_;
}

void SymmetricTensor::setup_remote_handles(const std::string& tag) {
  if (handle_) return;
  try {
    handle_ = rendezvous(local_, group_);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", title(tag), error.what()));
  }
}

Tensor SymmetricTensor::remote_tensor(int rank) const {
  TUTTI_CHECK(rank >= 0 && rank < group_.size(), "SymmetricTensor: remote_tensor: rank {}; ranks are 0 to {}", rank,
              group_.size() - 1);
  if (rank == group_.rank()) return local_;
  return handle().get_remote_strided(rank, local_.extents(), local_.strides(), local_.dtype());
}

Tensor SymmetricTensor::remote_pointers_tensor() const {
  const std::vector<void*> buffers = handle().buffer_ptrs();
  Tensor pointers = Tensor::empty({group_.size()}, DType::i64);
  for (size_t r = 0; r < buffers.size(); ++r) {
    const auto* begin = static_cast<const std::byte*>(buffers[r]);
    pointers.data<int64_t>()[r] = begin == nullptr ? 0 : reinterpret_cast<int64_t>(begin + handle().offset());
  }
  return pointers;
}

void SymmetricTensor::setup_multicast(int exporter_rank, const std::string& tag) {
  TUTTI_CHECK(exporter_rank >= 0 && exporter_rank < group_.size(), "{}: setup_multicast: rank {}; ranks are 0 to {}",
              title(tag), exporter_rank, group_.size() - 1);
  TUTTI_CHECK(
      handle().has_multicast_support(),
      "{}: setup_multicast: backend {} has no multicast addresses; SymmHandle::multicast_write reaches all ranks on "
      "every backend",
      title(tag), handle().backend());
}

void* SymmetricTensor::multicast_ptr() const {
  void* address = handle().multicast_ptr();
  TUTTI_CHECK(address != nullptr, "SymmetricTensor: multicast_ptr: backend {} has no multicast addresses",
              handle().backend());
  return address;
}

void SymmetricTensor::setup_contiguous_view(const std::string& tag) {
  if (view_.defined()) return;
  try {
    view_ = handle().contiguous_view(local_.extents(), local_.strides(), local_.dtype());
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", title(tag), error.what()));
  }
}

Tensor SymmetricTensor::contiguous_view() const {
  TUTTI_CHECK(view_.defined(), "SymmetricTensor: call setup_contiguous_view() first");
  return view_;
}

}  // namespace tutti::comm::symm
