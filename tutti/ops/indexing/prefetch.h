// Memory that is asked for before it is needed.
#pragma once

#include <cstdint>

namespace tutti::facets {

// The line at `place`, which may be anywhere. An instruction of its own: GCC takes a function that only prefetches for
// one without effect, and drops calls of it, with __builtin_prefetch.
inline void prefetch_line(const void* place) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(place)));
}
inline void prefetch_line(uintptr_t place) { prefetch_line(reinterpret_cast<const void*>(place)); }

// The lines of `nbytes` from `place` on.
inline void prefetch_lines(const void* place, int64_t nbytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(place);
  for (int64_t byte = 0; byte < nbytes; byte += 64) prefetch_line(at + static_cast<uintptr_t>(byte));
}

}  // namespace tutti::facets
