#include "tutti/job/host/undo_record.h"

#include <cstring>

#include "tutti/core/error.h"

namespace tutti::comm {

std::optional<UndoRecord::Held> UndoRecord::held() const {
  if (header_->is_valid.load(std::memory_order_acquire) == 0) return std::nullopt;
  return header_->held;
}

// A killed process leaves all its stores up to some point of its program and none after it; the two fences keep the
// compiler to that order.
void UndoRecord::save(const Held& what, std::span<const std::span<std::byte>> pieces) {
  int64_t total = 0;
  for (const std::span<std::byte> piece : pieces) total += static_cast<int64_t>(piece.size());
  TUTTI_ASSERT(total <= capacity_, "{} bytes for an undo record of {}", total, capacity_);
  forget();
  std::byte* to = bytes_;
  for (const std::span<std::byte> piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  header_->held = what;
  header_->is_valid.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before the block is written
}

void UndoRecord::restore(std::span<const std::span<std::byte>> pieces) const {
  const std::byte* from = bytes_;
  for (const std::span<std::byte> piece : pieces) {
    std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
}

void UndoRecord::forget() {
  header_->is_valid.store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace tutti::comm
