#include "tutti/symm/ops/published.h"

#include <algorithm>
#include <cstring>

#include "tutti/symm/allocation.h"
#include "tutti/symm/connection.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm::symm {
namespace {

// Where the memory of each rank begins, of a handle or a lease.
template <class Memory>
std::vector<std::byte*> begins_of(const Memory& memory, int ranks) {
  std::vector<std::byte*> begins;
  for (int r = 0; r < ranks; ++r) begins.push_back(memory.data(r));
  return begins;
}

}  // namespace

Published::Published(OpCall& call, const Tensor& local, int64_t capacity) {
  const int64_t nbytes = std::max(capacity, local.nbytes());
  if (nbytes == 0) {
    call.agree();
  } else if (is_symm_mem_tensor(local)) {
    read_in_place(call, local);
  } else {
    borrow(call, nbytes, [&](std::byte* own) {
      if (local.nbytes() > 0) std::memcpy(own, local.raw_data(), static_cast<size_t>(local.nbytes()));
    });
  }
}

void Published::borrow(OpCall& call, int64_t nbytes, FunctionRef<void(std::byte* own)> fill) {
  WorkspaceRequest request(call.group(), nbytes);
  if (const WorkspaceLease* lease = request.lease()) {
    call.record.memory = OpMemory::workspace;
    call.record.place = lease->handle().connection()->number;
    call.record.offset = lease->offset();
    data_ = begins_of(*lease, call.ranks());
    fill(data(call.rank()));
    call.agree();
    lease_.emplace(request.take());
    return;
  }
  call.record.memory = OpMemory::more_workspace;
  call.agree();
  lease_.emplace(call.together([&] { return request.take(); }));
  data_ = begins_of(*lease_, call.ranks());
  fill(data(call.rank()));
  call.meet();
}

void Published::read_in_place(OpCall& call, const Tensor& local) {
  kept_ = known_handle(local, call.group());
  if (kept_) {
    call.record.memory = OpMemory::symmetric;
    call.record.place = kept_->connection()->number;
    call.record.offset = kept_->offset();
    data_ = begins_of(*kept_, call.ranks());
    call.agree();
    return;
  }
  call.record.memory = OpMemory::not_met;
  call.agree();
  kept_ = call.together([&] { return rendezvous(local, call.group()); });
  data_ = begins_of(*kept_, call.ranks());
  call.meet();
}

std::vector<const std::byte*> Published::at(int64_t byte_offset) const {
  std::vector<const std::byte*> pointers;
  for (std::byte* data : data_) pointers.push_back(data + byte_offset);
  return pointers;
}

}  // namespace tutti::comm::symm
