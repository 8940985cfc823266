// Which tensors of a list share memory, in time proportional to their number.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::graph {

// The first tensor of a list on each storage. Uses a table of its thread, so that calls allocate nothing once it is
// large enough; so there is at most one object of a thread at a time.
class FirstOnStorage {
 public:
  // For a list of so many tensors.
  explicit FirstOnStorage(size_t tensors) : slots_(table()) {
    size_t size = 64;
    while (size < 2 * tensors) size *= 2;
    if (slots_.size() < size) slots_.assign(size, {});
    if (++turn() != 0) return;
    slots_.assign(slots_.size(), {});
    turn() = 1;
  }

  // The place of the first tensor with the storage of `inside`, which is at place `i`; places come in their order.
  int32_t add(const Tensor& inside, size_t i) {
    Slot& slot = slot_of(inside);
    if (slot.turn != turn()) slot = {inside.storage().get(), static_cast<int32_t>(i), turn()};
    return slot.first;
  }
  // Whether a tensor with the storage of `inside` was added.
  bool has(const Tensor& inside) const { return slot_of(inside).turn == turn(); }

 private:
  struct Slot {
    const Storage* storage = nullptr;
    int32_t first = 0;
    uint32_t turn = 0;  // slots of other turns are empty
  };

  // Returns the slot of the storage, or an empty one.
  Slot& slot_of(const Tensor& inside) const {
    const Storage* storage = inside.storage().get();
    const size_t mask = slots_.size() - 1;
    for (size_t at = reinterpret_cast<uintptr_t>(storage) * 0x9E3779B97F4A7C15u >> 20 & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.turn != turn() || slot.storage == storage) return slot;
    }
  }
  static std::vector<Slot>& table() {
    thread_local std::vector<Slot> slots;
    return slots;
  }
  static uint32_t& turn() {
    thread_local uint32_t turn = 0;
    return turn;
  }

  std::vector<Slot>& slots_;
};

}  // namespace tutti::graph
