// Convolutions as modules.
#pragma once

#include "tutti/nn/module.h"
#include "tutti/ops/convolution.h"

namespace tutti::nn {

// weight [outputs, channels / groups, kernel...] is initialized from a normal distribution with variance 1 / (3
// fan_in), that of the uniform distribution on +-1 / sqrt(fan_in); bias [outputs] starts as zeros. `kernel` has one
// size per spatial dim, or one for all of them. forward() has the shapes and errors of conv1d, conv2d and conv3d
// (tutti/ops/convolution.h).
class Conv : public Module {
 public:
  Parameter weight, bias;  // bias is undefined when constructed with bias = false

 protected:
  Conv(int dims, int64_t channels, int64_t outputs, const Dims& kernel, const ConvOptions& options, bool bias);
  ConvOptions options_;
};

struct Conv1d : Conv {
  Conv1d(int64_t channels, int64_t outputs, const Dims& kernel, const ConvOptions& options = {}, bool bias = true)
      : Conv(1, channels, outputs, kernel, options, bias) {}
  Tensor forward(const Tensor& x) const { return conv1d(x, weight, bias, options_); }
};

struct Conv2d : Conv {
  Conv2d(int64_t channels, int64_t outputs, const Dims& kernel, const ConvOptions& options = {}, bool bias = true)
      : Conv(2, channels, outputs, kernel, options, bias) {}
  Tensor forward(const Tensor& x) const { return conv2d(x, weight, bias, options_); }
};

struct Conv3d : Conv {
  Conv3d(int64_t channels, int64_t outputs, const Dims& kernel, const ConvOptions& options = {}, bool bias = true)
      : Conv(3, channels, outputs, kernel, options, bias) {}
  Tensor forward(const Tensor& x) const { return conv3d(x, weight, bias, options_); }
};

}  // namespace tutti::nn
