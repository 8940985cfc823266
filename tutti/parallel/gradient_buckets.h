// The parts in which ranks exchange gradients. What a rank holds of the gradients of other ranks is limited by the size
// of a bucket, and a gradient is released as soon as its bucket has been sent.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// Per parameter, the f32 gradient of each of its uses, in forward order.
using UseGradients = std::vector<std::vector<Tensor>>;
// Per parameter, the sizes of each of its uses, in forward order.
using UseLayout = std::vector<std::vector<Extents>>;

UseLayout layout_of(const UseGradients& parameters);
// Equal on two ranks when their layouts are.
uint64_t hash_of(const UseLayout& layout);

// Elements of gradients that travel together. All are of parameters that have equally many uses, at least one.
struct GradientBucket {
  struct Part {
    size_t parameter;
    int shard = -1;  // of a parameter that is cut: whose part it is
    int64_t numel = 0;
  };
  std::vector<Part> parts;  // one after another
  size_t uses = 0;
  int64_t numel = 0;  // of one use
  // The elements, of the `numel`, that each shard keeps, and those that each rank adds. Empty: every rank keeps all.
  std::vector<comm::NodeSlice> kept, slices;
  // A bucket of a large parameter has its elements from `first` on, in place. Others copy theirs together.
  bool is_large = false;
  int64_t first = 0;
  bool is_last = true;  // no further bucket needs the gradients

  bool is_cut() const { return !slices.empty(); }
  comm::NodeSlice slice_of(int rank, int ranks) const {
    return is_cut() ? slices[static_cast<size_t>(rank)] : comm::slice_of(numel, rank, ranks);
  }
};

// Divides all elements of all parameters into buckets, in the order in which backward finishes them: from the last
// parameter to the first, since forward uses them in their order. A bucket has an eighth of them, but at least 256 KiB
// and at most 32 MiB. Of a parameter that is cut along another dim than the first, one bucket has all. UsageError when
// the uses of a parameter have different sizes.
std::vector<GradientBucket> buckets_of(const UseLayout& layout, const GradientPlacements& placements);

// Writes the elements of use `use` in a bucket to `out` (f32, [numel], contiguous), and releases gradients that no
// further bucket needs.
void take_use(UseGradients& uses, const GradientBucket& bucket, size_t use, const GradientPlacements& placements,
              const Tensor& out);
// Returns the same as a tensor, which is a view of the gradient where that is possible.
Tensor take_use(UseGradients& uses, const GradientBucket& bucket, size_t use, const GradientPlacements& placements);

// Memory of finished gradients, or this rank's parts of them, which is allocated bucket by bucket.
class FinishedGradients {
 public:
  FinishedGradients(const UseLayout& layout, const GradientPlacements& placements)
      : layout_(layout), placements_(placements), gradients_(layout.size()) {}
  // Returns the memory for what this rank keeps of the sum of a bucket: f32, 1-d, contiguous. Buckets come in the order
  // of buckets_of().
  Tensor memory(const GradientBucket& bucket);
  // One gradient per parameter, undefined where it has no use.
  std::vector<Tensor> take() { return std::move(gradients_); }

 private:
  const UseLayout& layout_;
  const GradientPlacements& placements_;
  std::vector<Tensor> gradients_;
};

}  // namespace tutti::parallel
