// The block sizes of the allocator. Four size classes per power of two keep the waste below a quarter.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

struct SizeClass {
  int index;
  size_t nbytes;
};
SizeClass size_class_of(size_t nbytes);

// The block size that an allocation of `nbytes` bytes uses and is counted as; 0 for 0 bytes.
inline int64_t block_bytes(int64_t nbytes) {
  return nbytes == 0 ? 0 : static_cast<int64_t>(size_class_of(static_cast<size_t>(nbytes)).nbytes);
}

}  // namespace tutti
