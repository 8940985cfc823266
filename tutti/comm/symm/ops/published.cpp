#include "tutti/comm/symm/ops/published.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/symm/allocation.h"
#include "tutti/comm/symm/backend.h"
#include "tutti/comm/symm/rendezvous.h"

namespace tutti::comm::symm {

void check_host_access(const char* op, const SymmGroup& group) {
  TUTTI_CHECK(group, "{}: no group is given", op);
  const BackendTraits& traits = find_backend(group.backend()).traits();
  TUTTI_CHECK(traits.host_access, "{}: the host cannot read memory of backend {}; native and threads have what this op needs",
              op, traits.name);
}

void check_reducible(const char* op, const ReduceOp& reduce, DType dtype) {
  const std::string reason = why_not_reducible(reduce.kind(), dtype);
  TUTTI_CHECK(reason.empty(), "{}: {}", op, reason);
  TUTTI_CHECK(reduce.kind() != ReduceKind::premul_sum, "{}: premul_sum needs the factors of all ranks; scale the input first", op);
}

Published::Published(const char* op, const Tensor& local, const SymmGroup& group, int64_t capacity) {
  check_host_access(op, group);
  TUTTI_CHECK(local.defined() && local.is_contiguous() && local.device() == kCpu, "{}: the input must be contiguous and on the host", op);
  if (is_symm_mem_tensor(local)) {
    kept_ = rendezvous(local, group);
    handle_ = kept_.get();
    for (int r = 0; r < group.size(); ++r) {
      data_.push_back(static_cast<std::byte*>(handle_->get_remote_tensor(r, {local.nbytes()}, DType::u8).raw_data()));
    }
  } else {
    lease_.emplace(get_symm_mem_workspace(group, std::max(capacity, local.nbytes())));
    handle_ = &lease_->handle();
    for (int r = 0; r < group.size(); ++r) {
      data_.push_back(static_cast<std::byte*>(lease_->view(r, {lease_->nbytes()}, DType::u8).raw_data()));
    }
    std::memcpy(data(group.rank()), local.raw_data(), static_cast<size_t>(local.nbytes()));
  }
  channel_.emplace(handle_->lease_channel());
}

std::vector<const std::byte*> Published::at(int64_t byte_offset) const {
  std::vector<const std::byte*> pointers;
  for (std::byte* data : data_) pointers.push_back(data + byte_offset);
  return pointers;
}

}  // namespace tutti::comm::symm
