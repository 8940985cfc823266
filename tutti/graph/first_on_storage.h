// Which tensors of a list are one or share memory, in time proportional to their number.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::graph {

// The first place of each key in a list. Uses a table of its thread, so that calls allocate nothing once it is large
// enough; so there is at most one object for a type of keys and a thread at a time.
template <class Key>
class FirstPlaces {
 public:
  // For a list of so many keys.
  explicit FirstPlaces(size_t keys) : slots_(table()) {
    size_t size = 64;
    while (size < 2 * keys) size *= 2;
    if (slots_.size() < size) slots_.assign(size, {});
    if (++turn() != 0) return;
    slots_.assign(slots_.size(), {});
    turn() = 1;
  }

  // The first place of the key that is at place `i`; the places of a key come in their order.
  int32_t add(const Key* key, size_t i) {
    Slot& slot = slot_of(key);
    if (slot.turn != turn()) slot = {key, static_cast<int32_t>(i), turn()};
    return slot.first;
  }
  bool has(const Key* key) const { return slot_of(key).turn == turn(); }

 private:
  struct Slot {
    const Key* key = nullptr;
    int32_t first = 0;
    uint32_t turn = 0;  // slots of other turns are empty
  };

  // Returns the slot of the key, or an empty one.
  Slot& slot_of(const Key* key) const {
    const size_t mask = slots_.size() - 1;
    for (size_t at = reinterpret_cast<uintptr_t>(key) * 0x9E3779B97F4A7C15u >> 20 & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.turn != turn() || slot.key == key) return slot;
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

// The first tensor of a list on each storage.
class FirstOnStorage {
 public:
  explicit FirstOnStorage(size_t tensors) : places_(tensors) {}

  // The place of the first tensor with the storage of `inside`, which is at place `i`; places come in their order.
  int32_t add(const Tensor& inside, size_t i) { return places_.add(inside.storage().get(), i); }
  // Whether a tensor with the storage of `inside` was added.
  bool has(const Tensor& inside) const { return places_.has(inside.storage().get()); }

 private:
  FirstPlaces<Storage> places_;
};

// The first tensor of a list that is the same object, for lists in which most tensors have memory of their own.
class FirstSame {
 public:
  explicit FirstSame(const std::vector<Tensor>& tensors) : tensors_(tensors), places_(tensors.size()) {}

  // The place of the first tensor that is tensor `i`; places come in their order. alias: that of the first tensor on
  // its storage.
  int32_t add(size_t i, int32_t alias) {
    const auto first = static_cast<size_t>(alias);
    if (first == i) return alias;
    places_.add(tensors_[first].impl(), first);
    return places_.add(tensors_[i].impl(), i);
  }

 private:
  const std::vector<Tensor>& tensors_;
  FirstPlaces<TensorImpl> places_;
};

}  // namespace tutti::graph
