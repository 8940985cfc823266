// A second kind of operand, for tests of those who ask operands: x W^T + (x A^T) B^T with a dense W.
#pragma once

#include <memory>
#include <utility>

#include "tutti/nn/linear.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/matmul.h"

namespace tutti::nn {

class LowRankOperand final : public LinearOperand {
 public:
  LowRankOperand(Parameter weight, int64_t rank, const Init& init_b = Init::normal(0.1))
      : weight_(std::move(weight)),
        a_("low_rank_a", {rank, weight_.sizes()[1]}, Init::normal(0.1)),
        b_("low_rank_b", {weight_.sizes()[0], rank}, init_b) {}
  int64_t in_features() const override { return weight_.sizes()[1]; }
  int64_t out_features() const override { return weight_.sizes()[0]; }
  std::string_view kind() const override { return "low-rank"; }
  std::vector<Parameter> parameters() const override { return {weight_, a_, b_}; }
  Tensor product(const Tensor& x, std::optional<DType> out_dtype) const override {
    const Tensor sum = add(linear(x, weight_), linear(linear(x, a_), b_));
    return out_dtype ? cast(sum, *out_dtype) : sum;
  }
  // W + B A.
  Tensor merged() const { return add(weight_, matmul(b_, a_)); }

 private:
  Parameter weight_, a_, b_;
};

// Gives the layer such an operand and returns it.
inline std::shared_ptr<const LowRankOperand> make_low_rank(Linear& layer, int64_t rank,
                                                           const Init& init_b = Init::normal(0.1)) {
  auto operand = std::make_shared<const LowRankOperand>(layer.weight, rank, init_b);
  layer.set_operand(operand);
  return operand;
}

}  // namespace tutti::nn
