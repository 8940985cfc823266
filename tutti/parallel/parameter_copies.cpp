#include "tutti/parallel/parameter_copies.h"

#include <algorithm>

#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kAlignment = 64;

int64_t nbytes_of(const ParameterCopies::Sizes& p) { return numel_of(p.sizes) * itemsize(p.dtype); }

// A parameter whose values lie elsewhere takes nothing of the pages of the copies.
int64_t page_bytes_of(const ParameterCopies::Sizes& p) {
  return p.memory.defined() ? 0 : comm::symm::round_up(nbytes_of(p), kAlignment);
}

}  // namespace

bool shares_memory(const comm::ProcessGroup& group) {
  const std::string transport = group.backend(DeviceKind::cpu).name();
  return group.size() > 1 && (transport == "shm" || transport == "threads");
}

ParameterCopies::ParameterCopies(comm::ProcessGroup& group, const std::vector<Sizes>& parameters)
    : is_shared_(shares_memory(group)) {
  for (const Sizes& p : parameters) nbytes_ += comm::symm::round_up(nbytes_of(p), kAlignment);
  if (is_shared_) {
    share(group, parameters);
  } else {
    const MemoryCategoryScope category(MemoryCategory::parameters);
    for (const Sizes& p : parameters) leaves_.push_back(Tensor::empty(p.sizes, p.dtype));
  }
  for (const Tensor& leaf : leaves_) leaf.storage()->set_read_only();
}

// The pages of all ranks side by side are one range of addresses, in which the parameters follow each other, wherever
// pages end.
void ParameterCopies::share(comm::ProcessGroup& group, const std::vector<Sizes>& parameters) {
  int64_t nbytes = 0;
  for (const Sizes& p : parameters) nbytes += page_bytes_of(p);
  const int64_t each = std::max(
      comm::symm::round_up((nbytes + group.size() - 1) / group.size(), comm::symm::kPageBytes), comm::symm::kPageBytes);
  const Tensor pages = comm::symm::empty_symm({each}, DType::u8, kCpu, {.group = comm::symm_group(group)});
  const std::shared_ptr<comm::symm::SymmHandle> handle = comm::symm::rendezvous(pages, comm::symm_group(group));
  const Tensor all = handle->contiguous_view({each}, {1}, DType::u8);
  TUTTI_ASSERT(all.strides()[0] == each, "the pages of {} bytes a rank lie {} bytes apart", each, all.strides()[0]);
  auto* at = static_cast<std::byte*>(all.raw_data());
  for (const Sizes& p : parameters) {
    StorageRef storage = StorageRef::adopt(
        p.memory.defined() ? Storage::wrap(p.memory.raw_data(), nbytes_of(p), kCpu, [memory = p.memory] {})
                           : Storage::wrap(at, nbytes_of(p), kCpu, [pages, handle, all] {}));
    leaves_.push_back(Tensor::over(std::move(storage), p.sizes, contiguous_strides(p.sizes), 0, p.dtype));
    at += page_bytes_of(p);
  }
  group.barrier();  // nobody gives pages back that another has not mapped
}

Tensor ParameterCopies::writable(size_t i) const {
  const Tensor& leaf = leaves_[i];
  if (leaf.numel() == 0) return Tensor::empty(leaf.extents(), leaf.dtype());
  StorageRef storage =
      StorageRef::adopt(Storage::wrap(leaf.storage()->data(), leaf.nbytes(), kCpu,
                                      [memory = leaf.storage()] {}));  // not the leaf, which refers to its master
  return Tensor::over(std::move(storage), leaf.extents(), contiguous_strides(leaf.extents()), 0, leaf.dtype());
}

void ParameterCopies::release() {
  if (is_shared_) return;
  for (const Tensor& leaf : leaves_) leaf.storage()->release_memory();
}

void ParameterCopies::restore() {
  for (const Tensor& leaf : leaves_) leaf.storage()->restore_memory();
}

}  // namespace tutti::parallel
