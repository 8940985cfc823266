#include "tutti/train/checkpoint/state_lease.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/copy.h"

namespace tutti::train {
namespace {

Tensor stored_part(const Tensor& t) { return dist::is_dtensor(t) ? dist::part_of(t, "checkpoint").local : t; }

size_t blocks_of(const Tensor& t) {
  return (static_cast<size_t>(t.nbytes()) + StateLease::kBlockBytes - 1) / StateLease::kBlockBytes;
}

}  // namespace

StateLease::StateLease(const NamedTensors& tensors) {
  const MemoryCategoryScope category(MemoryCategory::workspace);
  for (const auto& [name, t] : tensors) {
    const Tensor part = stored_part(t);
    const Tensor copy = Tensor::empty(part.extents(), part.dtype());
    if (copy.nbytes() > 0)
      std::memset(copy.raw_data(), 0, static_cast<size_t>(copy.nbytes()));  // the pages are there when they are needed
    copies_.emplace_back(name, dist::is_dtensor(t) ? dist::wrap(copy, dist::spec_of(t), dist::mesh_of(t)) : copy);
    count_ += blocks_of(copy);
  }
  blocks_ = std::make_unique<Block[]>(count_);
}

void StateLease::begin(const NamedTensors& tensors) {
  TUTTI_CHECK(
      std::all_of(blocks_.get(), blocks_.get() + count_, [](const Block& b) { return b.state.load() == copied; }),
      "StateLease: the lease before has not ended; complete() it");
  TUTTI_CHECK(tensors.size() == copies_.size(), "StateLease: {} tensors; expected the {} of before", tensors.size(),
              copies_.size());
  held_ = tensors;
  size_t b = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor from = stored_part(tensors[i].second), to = stored_part(copies_[i].second);
    TUTTI_CHECK(from.extents() == to.extents() && from.dtype() == to.dtype(), "StateLease: '{}' is {}; expected {}",
                tensors[i].first, describe(from), describe(to));
    if (!from.is_contiguous()) {  // a part between those of others, which has no blocks
      const NoGradScope no_grad;
      copy_(to, from);
      for (size_t k = 0; k < blocks_of(to); ++k) blocks_[b++].nbytes = 0;
      continue;
    }
    for (size_t at = 0; at < static_cast<size_t>(from.nbytes()); at += kBlockBytes) {
      Block& block = blocks_[b++];
      block.from = static_cast<const std::byte*>(from.raw_data()) + at;
      block.to = static_cast<std::byte*>(to.raw_data()) + at;
      block.nbytes = std::min(kBlockBytes, static_cast<size_t>(from.nbytes()) - at);
    }
  }
  for (size_t i = 0; i < count_; ++i) blocks_[i].state.store(here, std::memory_order_release);
}

bool StateLease::take(Block& block) {
  State expected = here;
  if (!block.state.compare_exchange_strong(expected, taken, std::memory_order_acq_rel)) return false;
  if (block.nbytes > 0) std::memcpy(block.to, block.from, block.nbytes);
  block.state.store(copied, std::memory_order_release);
  return true;
}

void StateLease::copy(std::chrono::microseconds delay) {
  for (size_t i = 0; i < count_; ++i) {
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    take(blocks_[i]);
  }
}

void StateLease::wait() const {
  for (size_t i = 0; i < count_; ++i) {
    while (blocks_[i].state.load(std::memory_order_acquire) != copied) std::this_thread::yield();
  }
}

size_t StateLease::complete() {
  size_t mine = 0;
  for (size_t i = count_; i-- > 0;) mine += take(blocks_[i]);
  wait();
  held_.clear();
  return mine;
}

}  // namespace tutti::train
