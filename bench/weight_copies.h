// Weights that are in no cache when their turn comes, and a plain read of their bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::bench {

// Copies of a tensor, one after the other: enough to fill 192 MiB, or two with `few`.
class WeightCopies {
 public:
  WeightCopies(const Tensor& one, bool few);
  const Tensor& next() { return copies_[turn_++ % copies_.size()]; }

 private:
  std::vector<Tensor> copies_;
  size_t turn_ = 0;
};

// Reads all whole lines of a tensor on all threads; the result depends on every byte of them.
uint64_t read_all(const Tensor& bytes);

}  // namespace tutti::bench
