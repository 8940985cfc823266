// The parts in which ranks exchange gradients. What a rank holds of the gradients of other ranks is limited by the size of a bucket,
// and a gradient is released as soon as its bucket has been sent.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// Per parameter, the f32 gradient of each of its uses, in forward order.
using UseGradients = std::vector<std::vector<Tensor>>;
// Per parameter, the sizes of each of its uses, in forward order.
using UseLayout = std::vector<std::vector<Extents>>;

UseLayout layout_of(const UseGradients& parameters);
// Equal on two ranks when their layouts are.
uint64_t hash_of(const UseLayout& layout);

// Whole parameters, or a part of a large one. All have equally many uses, at least one.
struct GradientBucket {
  struct Part {
    size_t parameter;
    int64_t begin, end;  // of its elements
  };
  std::vector<Part> parts;  // one after another
  size_t uses = 0;
  int64_t numel = 0;       // of one use
  bool is_large = false;   // a part of one large parameter
};

// Divides all elements of all parameters into buckets, in the order in which backward finishes them: from the last parameter to the first,
// since forward uses them in their order. A bucket has an eighth of them, but at least 256 KiB and at most 32 MiB. UsageError when the uses of a
// parameter have different sizes.
std::vector<GradientBucket> buckets_of(const UseLayout& layout);

// Writes the elements of use `use` in a bucket to `out` (f32, [numel], contiguous), and releases gradients that no further bucket needs.
void take_use(UseGradients& uses, const GradientBucket& bucket, size_t use, const Tensor& out);
// Returns the same as a tensor, which is a view of the gradient where that is possible.
Tensor take_use(UseGradients& uses, const GradientBucket& bucket, size_t use);

// Memory of finished gradients, which is allocated bucket by bucket.
class FinishedGradients {
 public:
  explicit FinishedGradients(const UseLayout& layout) : layout_(layout), gradients_(layout.size()) {}
  // Returns the memory for the sum of a bucket: f32, [numel], contiguous. Buckets come in the order of buckets_of().
  Tensor memory(const GradientBucket& bucket);
  // One gradient per parameter, undefined where it has no use.
  std::vector<Tensor> take() { return std::move(gradients_); }

 private:
  const UseLayout& layout_;
  std::vector<Tensor> gradients_;
};

}  // namespace tutti::parallel
