// Vectors of elements that lie a step apart, for loops over windows side by side.
#pragma once

#include <cstdint>
#include <cstring>

namespace tutti::facets {

template <class T>
struct Lanes {
  typedef T Type __attribute__((vector_size(32)));
  static constexpr int64_t kCount = 32 / sizeof(T);
};

// Elements at, at + step, ...; kStep is the step if that is 1 or 2, else 0. With a step of two, one element more is
// read.
template <class T, int64_t kStep>
typename Lanes<T>::Type load_lanes(const T* at, int64_t step) {
  using V = typename Lanes<T>::Type;
  V low, high;
  if constexpr (kStep == 0) {
    for (int64_t lane = 0; lane < Lanes<T>::kCount; ++lane) low[lane] = at[lane * step];
    return low;
  }
  std::memcpy(&low, at, sizeof(V));
  if constexpr (kStep == 1) return low;
  std::memcpy(&high, at + Lanes<T>::kCount, sizeof(V));
  if constexpr (sizeof(T) == 4) return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
  else return __builtin_shufflevector(low, high, 0, 2, 4, 6);
}

}  // namespace tutti::facets
