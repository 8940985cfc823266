// Memory of one task of attention, given back when the task ends.
#pragma once

#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::attention {

class Scratch {
 public:
  // Room for `count` elements, uninitialised, aligned to a cache line.
  void* take(int64_t count, DType dtype) {
    kept_.push_back(Tensor::empty({count}, dtype));
    return kept_.back().raw_data();
  }

 private:
  std::vector<Tensor> kept_;
};

// The place `count` elements further.
inline void* moved(void* data, int64_t count, DType dtype) {
  return static_cast<char*>(data) + count * itemsize(dtype);
}
inline const void* moved(const void* data, int64_t count, DType dtype) {
  return static_cast<const char*>(data) + count * itemsize(dtype);
}

}  // namespace tutti::attention
