// Counts what really runs on a rank, forward and backward, as a dispatch stage above eager execution: the
// floating-point operations of matrix products and attention calls, and the bytes that functional collectives and
// messages send.
#pragma once

#include "tutti/ops/engine/dispatch.h"

namespace tutti::layouts {

// Counts on this thread while it lives.
class Meter {
 public:
  Meter();
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  double flops() const { return flops_; }
  // Reductions and gathers as a ring or a direct exchange sends them.
  double wire_bytes() const { return wire_bytes_; }
  void add_flops(double flops) { flops_ += flops; }
  void add_wire_bytes(double bytes) { wire_bytes_ += bytes; }
  // For products outside of the op table.
  static Meter* current();

 private:
  double flops_ = 0, wire_bytes_ = 0;
  Meter* previous_;
  StageScope scope_;
};

}  // namespace tutti::layouts
