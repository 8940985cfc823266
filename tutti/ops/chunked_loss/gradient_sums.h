// The gradient of a chunk of logits times what made it: gradients of input, weight and bias as sums over chunks.
#pragma once

#include <optional>

#include "tutti/ops/chunked_loss/chunk.h"

namespace tutti::chunked_loss {

// Sums of rows over parts that come in the order of a tree. The first grows in the result itself where that has the
// dtype of sums, and takes the rest once where not; one part alone goes straight to the result.
class PendingSums {
 public:
  // Sums `rows` rows like those of `result` over `parts`.
  PendingSums(const Tensor& result, int64_t rows, const std::vector<TreePart>& parts, DType dtype);
  // Where the value of a part goes; `result` are the rows it counts for, which begin at row `begin` of these sums.
  Tensor slot(const Tensor& result, int64_t begin, int pending) const;
  // The value of `part` is in its slot.
  void join(const Tensor& result, int64_t begin, const TreePart& part, bool is_last) const;

 private:
  bool straight_;
  int first_ = 1;  // slots from here on are in room_
  int64_t rows_ = 0;
  Tensor room_;
};

// The gradient of x, a sum over chunks of classes. `call` and `result` outlive it.
class InputGradient {
 public:
  // For `rows` rows at once.
  InputGradient(const OpCall& call, const Tensor& result, int64_t rows, const std::vector<TreePart>& classes);
  // d w over the classes of the chunk; `begin`: where its rows stand among those at once.
  void add(const Tensor& d, const TreePart& rows, const TreePart& classes, int64_t begin) const;

 private:
  const OpCall& call_;
  const Tensor& result_;
  int64_t classes_;  // where the last chunk ends
  PendingSums sums_;
};

// The gradients of weight and bias, where they are needed: sums over chunks of rows. `call` and results outlive it.
class ParameterGradients {
 public:
  // For `classes` classes at once.
  ParameterGradients(const OpCall& call, const Tensor& weight, const Tensor& bias, int64_t classes,
                     const std::vector<TreePart>& rows);
  // d^T x and the sum of d over the rows of the chunk, tokens in their order (N3t).
  void add(const Tensor& d, const TreePart& rows, const TreePart& classes) const;

 private:
  const OpCall& call_;
  const Tensor &weight_, &bias_;
  std::optional<PendingSums> weight_sums_, bias_sums_;
};

}  // namespace tutti::chunked_loss
