// The tensors of a call as dense bytes, because transports do not handle strides.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::comm {

// A tensor that is read: itself, or a dense copy.
class DenseInput {
 public:
  DenseInput() = default;
  explicit DenseInput(const Tensor& t);
  const std::byte* data() const { return static_cast<const std::byte*>(tensor_.raw_data()); }
  int64_t bytes() const { return tensor_.nbytes(); }

 private:
  Tensor tensor_;
};

// A tensor that is written: itself, or a dense buffer that finish() copies into it. `with_values`: the buffer starts
// with the tensor's values (calls that also read it).
class DenseOutput {
 public:
  DenseOutput() = default;
  explicit DenseOutput(const Tensor& t, bool with_values = false);
  std::byte* data() const { return static_cast<std::byte*>(dense().raw_data()); }
  int64_t bytes() const { return target_.nbytes(); }
  // Call once all bytes have arrived.
  void finish();

 private:
  const Tensor& dense() const { return copy_.defined() ? copy_ : target_; }
  Tensor target_;
  Tensor copy_;  // undefined when the target is dense itself
};

template <class Dense>
std::vector<Dense> dense_list(std::span<const Tensor> tensors) {
  return {tensors.begin(), tensors.end()};
}

}  // namespace tutti::comm
