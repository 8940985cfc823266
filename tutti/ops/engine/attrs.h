// Attrs: the typed, trivially copyable options of one op call, carried without knowing their type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "tutti/core/error.h"

namespace tutti {

class Attrs {
 public:
  static constexpr size_t kCapacity = 256;

  Attrs() {}  // not defaulted: `Attrs{}` would clear all bytes at each call of an op
  template <class T>
  static Attrs of(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kCapacity && alignof(T) <= 8);
    Attrs a;
    std::memcpy(a.bytes_, &value, sizeof(T));
    __builtin_clear_padding(reinterpret_cast<T*>(a.bytes_));
    a.size_ = sizeof(T);
    return a;
  }
  Attrs(const Attrs& other) : size_(other.size_) { std::memcpy(bytes_, other.bytes_, size_); }
  Attrs& operator=(const Attrs& other) {
    size_ = other.size_;
    std::memmove(bytes_, other.bytes_, size_);
    return *this;
  }

  template <class T>
  const T& as() const {
    TUTTI_ASSERT(size_ == sizeof(T), "attrs hold {} bytes, {} were expected", size_, sizeof(T));
    return *reinterpret_cast<const T*>(bytes_);
  }
  // Puts map(word) in the place of each of the 8-byte words.
  template <class Map>
  void replace_words(Map&& map) {
    for (size_t at = 0; at + 8 <= size_; at += 8) {
      int64_t word;
      std::memcpy(&word, bytes_ + at, 8);
      word = map(word);
      std::memcpy(bytes_ + at, &word, 8);
    }
  }
  bool empty() const { return size_ == 0; }
  // Equal bytes mean equal attrs. Equal attrs have equal bytes where their type has no unused elements (an InlineDims keeps
  // what was behind its end): padding is cleared, so that no pass depends on what lay in memory before.
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }

 private:
  alignas(8) std::byte bytes_[kCapacity];
  size_t size_ = 0;
};

}  // namespace tutti
