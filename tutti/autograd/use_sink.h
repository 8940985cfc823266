// UseSink: takes the gradients of leaves use by use, while backward runs.
//
// A use is one edge from a recorded op to a leaf. Its gradient is delivered as soon as the op's backward has run, so
// whoever adds gradients over virtual shards, or sends them to other ranks, can begin under the rest of the backward
// and keeps no set of them. Uses arrive from the last to the first in forward order, those of one op by input number.
//
// In a compiled function the deliveries are nodes of the graph, which run in this order each time the function runs.
#pragma once

#include <cstdint>

#include "tutti/tensor/tensor.h"

namespace tutti {

class UseSink {
 public:
  virtual ~UseSink() = default;
  // The number of `leaf` among the leaves whose uses this takes; -1: it takes none, and backward adds to its grad.
  virtual int32_t index_of(const Tensor& leaf) const = 0;
  // The gradient (f32 unless the leaf is f64) of one use of a leaf. `position` is its place in forward order among the
  // uses of the leaf that have arrived in this backward: 0 when it comes before all of them. Of a distributed leaf,
  // `grad` is the part of this rank. The memory of `grad` may serve others, too, and must not be written as long as
  // they hold it; whoever gives the only handle gives the memory.
  virtual void use(int32_t leaf, int32_t position, Tensor grad) = 0;
  // The leaf has no further uses in this backward. It is not called for leaves that the output does not depend on.
  virtual void finished(int32_t leaf) = 0;
};

namespace autograd {

// Calls of use() and finished() that a trace records. For the backward engine.
void deliver_use(UseSink& sink, int32_t leaf, int32_t position, const Tensor& grad);
void deliver_finished(UseSink& sink, int32_t leaf);

}  // namespace autograd
}  // namespace tutti
