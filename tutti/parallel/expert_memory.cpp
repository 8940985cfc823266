#include "tutti/parallel/expert_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "tutti/autograd/recomputing.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/token_places.h"
#include "tutti/runtime/allocator.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::parallel {
namespace {

std::string transport_of(const comm::ProcessGroup& group) { return group.backend(DeviceKind::cpu).name(); }

}  // namespace

ExpertMemory::ExpertMemory(std::shared_ptr<comm::ProcessGroup> group, int64_t experts, const Options& options)
    : group_(std::move(group)), experts_(experts), options_(options) {
  const std::string transport = transport_of(*group_);
  TUTTI_CHECK(transport == "shm" || transport == "threads" || transport == "fake",
              "expert_parallel: rows are to be {} the memory of other ranks, which the transport {} of group '{}' does "
              "not share; use transport shm or threads, or the standard exchange "
              "(parallelism.expert_parallel_comm_backend = standard), which has the same bits",
              options_.reads_tokens ? "read in" : "stored in", transport, group_->name());
}

ExpertMemory::~ExpertMemory() { dispatch_counts().memory_bytes -= nbytes_; }

int64_t ExpertMemory::capacity(const Sizes& sizes) const {
  return group_->size() * sizes.max_tokens * std::min(sizes.slots_per_token, experts_ / group_->size());
}

Tensor ExpertMemory::allocate(const Extents& sizes, DType dtype) {
  if (transport_of(*group_) == "fake") {  // a plan, which counts it; its rank ends before this object
    const Tensor made = zeros(to_shape(sizes), dtype);
    dispatch_counts().memory_bytes += made.nbytes();
    return made;
  }
  const comm::symm::SymmGroup ranks = comm::symm_group(*group_);
  const Tensor made = comm::symm::empty_symm(sizes, dtype, kCpu, {.group = ranks, .signal_pad_bytes = 4096});
  comm::symm::rendezvous(made, ranks);
  nbytes_ += made.nbytes();
  dispatch_counts().memory_bytes += made.nbytes();
  return made;
}

ForwardBuffers& ExpertMemory::forward_buffers(Room& room, const Sizes& sizes, int layer) {
  ForwardBuffers* found = nullptr;
  if (is_grad_enabled() && !is_recomputing()) {
    found = &room.of_layers[layer];
  } else {
    // The layers of a region that runs again are all alive until its backward is over.
    const uint64_t region = is_recomputing() ? autograd::current_region() : 0;
    forwards_here_ = region != 0 && region == region_ ? forwards_here_ + 1 : 0;
    region_ = region;
    found = &room.common[forwards_here_];
  }
  if (!found->rows.defined()) {
    const expert_rows::Lists lists{experts_, group_->size(), capacity(sizes), sizes.max_tokens * sizes.slots_per_token};
    found->rows = allocate({options_.reads_tokens ? sizes.max_tokens : lists.capacity, sizes.dim}, sizes.dtype);
    found->lists = allocate({lists.size()}, DType::i64);
    found->outputs = allocate({lists.slots, sizes.dim}, sizes.dtype);
  }
  return *found;
}

// Batches of any size are evaluated, such as a sample that grows by a token at a time: they share what is large enough,
// or the next power of two, so that few buffers are made.
ExpertMemory::Sizes ExpertMemory::with_room(Sizes sizes) const {
  if (is_grad_enabled() || is_recomputing()) return sizes;
  for (const auto& [known, room] : rooms_) {  // the smallest first
    if (known.max_tokens >= sizes.max_tokens && known.slots_per_token == sizes.slots_per_token &&
        known.dim == sizes.dim && known.dtype == sizes.dtype)
      return known;
  }
  sizes.max_tokens = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sizes.max_tokens)));
  return sizes;
}

ExpertMemory::Buffers ExpertMemory::buffers(const Sizes& needed, int layer) {
  const Sizes sizes = with_room(needed);
  const MemoryCategoryScope category(MemoryCategory::activations);
  Room& room = rooms_[sizes];
  const int64_t slots = sizes.max_tokens * sizes.slots_per_token;
  if (!room.mailbox.defined()) {
    const NoGradScope no_grad;
    room.mailbox = allocate({group_->size(), experts_ + 1}, DType::i64);
    const int64_t both = std::max(capacity(sizes), slots);
    room.backward.at_experts =
        allocate({options_.backward_buffers == 1 ? both : capacity(sizes), sizes.dim}, sizes.dtype);
    room.backward.at_tokens =
        options_.backward_buffers == 1 ? room.backward.at_experts : allocate({slots, sizes.dim}, sizes.dtype);
  }
  const int64_t grain = token_grain();
  return {.exchange = {comm::functional::GroupRef::of(group_), sizes.max_tokens,
                       TokenPlaces::stride(sizes.max_tokens, grain).value(), grain, sizes.slots_per_token,
                       options_.poisons},
          .lists = {experts_, group_->size(), capacity(sizes), slots},
          .forward = forward_buffers(room, sizes, layer),
          .backward = room.backward,
          .mailbox = room.mailbox};
}

bool poisons_expert_rows() {
  static const bool on = [] {
    const char* text = std::getenv("TUTTI_POISON_EXPERT_ROWS");
    return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
  }();
  return on;
}

}  // namespace tutti::parallel
