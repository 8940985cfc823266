#include "tutti/symm/connection.h"

namespace tutti::comm::symm {

int ChannelPool::lease() {
  const std::lock_guard lock(mutex_);
  for (size_t c = leased_.size(); c-- > 0;) {
    if (leased_[c]) continue;
    leased_[c] = true;
    return static_cast<int>(c);
  }
  return -1;
}

void ChannelPool::release(int channel) {
  const std::lock_guard lock(mutex_);
  leased_[static_cast<size_t>(channel)] = false;
}

static uint64_t generation_of(const Block& block) {
  return reinterpret_cast<const BlockHeader*>(block.base)->generation.load(std::memory_order_acquire);
}

bool Connection::is_current(int rank) const {
  if (!allocation->backend.traits().host_access) return allocation->generation() == generation;
  return generation_of(*blocks[static_cast<size_t>(rank)]) == generations[static_cast<size_t>(rank)];
}

bool Connection::is_reused(int rank) const {
  if (!allocation->backend.traits().host_access || !own_pads.empty()) return false;
  const uint64_t now = generation_of(*blocks[static_cast<size_t>(rank)]);
  return now != 0 && now != generations[static_cast<size_t>(rank)];
}

std::byte* Connection::contiguous_view() {
  const std::lock_guard lock(mutex_);
  if (!view_) {
    const int64_t stride = view_stride();
    auto range = std::make_unique<AddressRange>(stride * static_cast<int64_t>(blocks.size()));
    for (size_t r = 0; r < blocks.size(); ++r) {
      range->show(stride * static_cast<int64_t>(r), data(static_cast<int>(r)), stride);
    }
    view_.swap(range);
  }
  return view_->base();
}

// The pads go first: they tell the others through memory of the blocks that this rank has left. When the memory has a
// new tensor, the pad inside the block belongs to that one.
Connection::~Connection() {
  if (pads && is_reused(own_rank)) pads->leave_silently();
  pads.reset();
}

}  // namespace tutti::comm::symm
