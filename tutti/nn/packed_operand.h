// Linear layers whose weights are packed in the order in which products read them (ops/packed_linear.h), for inference
// with few rows of x, which then read each weight once and in order. Many hundreds of rows gain nothing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tutti/nn/linear_operand.h"

namespace tutti::nn {

class Linear;
class Module;

// The matrix of another operand, packed when it was made: later changes of its parameters are not seen. Products have
// the bits of the other operand's and no gradient of the weight; those with an `out_dtype` that is not the common dtype
// are the other operand's own.
class PackedOperand final : public LinearOperand {
 public:
  // UsageError when `from` has no matrix.
  explicit PackedOperand(std::shared_ptr<const LinearOperand> from);
  int64_t in_features() const override { return from_->in_features(); }
  int64_t out_features() const override { return from_->out_features(); }
  std::string_view kind() const override { return "packed"; }
  std::vector<Parameter> parameters() const override { return from_->parameters(); }
  Tensor product(const Tensor& x, std::optional<DType> out_dtype) const override;

 private:
  const std::shared_ptr<const LinearOperand> from_;
  const Tensor packed_;
};

// While it lives, the layers below a module that have a dense matrix compute with packed ones. Not for modules that
// ranks divide. The module must outlive it, and its operands may not be set meanwhile.
class PackedLinears {
 public:
  explicit PackedLinears(Module& module);
  ~PackedLinears();
  PackedLinears(const PackedLinears&) = delete;
  PackedLinears& operator=(const PackedLinears&) = delete;
  size_t count() const { return before_.size(); }

 private:
  std::vector<std::pair<Linear*, std::shared_ptr<const LinearOperand>>> before_;
};

}  // namespace tutti::nn
