#include "tutti/nn/linear_operand.h"

#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"

namespace tutti::nn {

Tensor DenseOperand::product(const Tensor& x, std::optional<DType> out_dtype) const {
  if (!out_dtype) return linear(x, weight_);
  return matmul(x, transpose(weight_, 0, 1), {.out_dtype = out_dtype});
}

}  // namespace tutti::nn
