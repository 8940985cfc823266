// Counts the floating-point operations of the matrix products and attention calls that really run on a rank, forward
// and backward, as a dispatch stage above eager execution.
#pragma once

#include "tutti/ops/engine/dispatch.h"

namespace tutti::layouts {

// Counts on this thread while it lives.
class FlopMeter {
 public:
  FlopMeter();
  ~FlopMeter();
  FlopMeter(const FlopMeter&) = delete;
  FlopMeter& operator=(const FlopMeter&) = delete;
  double flops() const { return flops_; }
  void add(double flops) { flops_ += flops; }
  // For products outside of the op table.
  static FlopMeter* current();

 private:
  double flops_ = 0;
  FlopMeter* previous_;
  StageScope scope_;
};

}  // namespace tutti::layouts
