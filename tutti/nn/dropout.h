// Dropout as a module.
#pragma once

#include "tutti/core/error.h"
#include "tutti/nn/module.h"
#include "tutti/ops/dropout.h"

namespace tutti::nn {

// dropout in training mode, the identity in evaluation mode. Inside a DrawScope (tutti/ops/random_key.h) the mask is a
// function of seed, step, virtual shard and the module's path, and so the same on any number of ranks.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    TUTTI_CHECK(p >= 0 && p <= 1, "Dropout: p is {}; expected a probability", p);
  }
  Tensor forward(const Tensor& x) const { return p_ > 0 && is_training() ? dropout(x, p_) : x; }
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace tutti::nn
