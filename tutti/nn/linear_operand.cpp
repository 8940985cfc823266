#include "tutti/nn/linear_operand.h"

#include "tutti/core/block_format.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/quantized_linear.h"

namespace tutti::nn {

std::string_view DenseOperand::kind() const {
  return weight_.holds_blocks() ? name_of(weight_.block_format()) : "dense";
}

Tensor DenseOperand::product(const Tensor& x, std::optional<DType> out_dtype) const {
  if (weight_.holds_blocks()) return quantized_linear(x, weight_.blocks(), weight_.block_format(), out_dtype);
  if (!out_dtype) return linear(x, weight_);
  return matmul(x, transpose(weight_, 0, 1), {.out_dtype = out_dtype});
}

}  // namespace tutti::nn
