// Matrices of linear maps that are held as codes.
#pragma once

#include <string>

#include "tutti/nn/linear_operand.h"
#include "tutti/ops/scaled_linear.h"
#include "tutti/ops/weight_only_linear.h"

namespace tutti::nn {

// Codes that multiply codes of x: scaled_linear(). x is rounded row by row, or by one scale that is known beforehand.
class ScaledOperand final : public LinearOperand {
 public:
  // `x` is undefined, or has one scale and, for codes of u8, a zero point. `kind` is a word for messages.
  ScaledOperand(std::string kind, const ScaledWeight& weight, const AffineScale& x, DType x_codes);
  int64_t in_features() const override { return sizes_[1]; }
  int64_t out_features() const override { return sizes_[0]; }
  std::string_view kind() const override { return kind_; }
  std::vector<Parameter> parameters() const override { return {}; }
  Tensor product(const Tensor& x, std::optional<DType> out_dtype) const override;

 private:
  const std::string kind_;
  const Extents sizes_;
  const DType x_codes_;
  Buffer codes_, scale_, x_scale_, x_zero_point_;  // the last two may be undefined
};

// Codes that multiply numbers: weight_only_linear().
class WeightOnlyOperand final : public LinearOperand {
 public:
  WeightOnlyOperand(std::string kind, const CodedWeight& weight);
  int64_t in_features() const override { return sizes_[1]; }
  int64_t out_features() const override { return sizes_[0]; }
  std::string_view kind() const override { return kind_; }
  std::vector<Parameter> parameters() const override { return {}; }
  Tensor product(const Tensor& x, std::optional<DType> out_dtype) const override;

 private:
  const std::string kind_;
  const Extents sizes_;
  Buffer codes_, scale_, minimum_;  // the last may be undefined
};

}  // namespace tutti::nn
