// Where the windows of pooling lie. One and two dims are three with leading dims of size 1.
#pragma once

#include "tutti/ops/engine/conv_geometry.h"

namespace tutti::facets {

// Elements first, first + step, ... below `last` of one dim; all of them exist.
struct Taps {
  int64_t first, last, step;
  int64_t count() const { return (last - first + step - 1) / step; }
};

struct PoolWindows {
  int64_t dims;  // 1 to 3
  Triple size{1, 1, 1}, output{1, 1, 1};
  Triple kernel{1, 1, 1}, stride{1, 1, 1}, before{0, 0, 0}, dilation{1, 1, 1};
  int64_t adaptive = 0;  // windows [floor(o S / P), ceil((o + 1) S / P)) instead

  Taps taps(size_t d, int64_t o) const;
  // Elements of the window of output `o` along dim d, the padding it reaches over included.
  int64_t padded_count(size_t d, int64_t o) const;

  // visit(output, taps[3]) for the outputs of one plane, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    int64_t at = 0;
    for (int64_t o0 = 0; o0 < output[0]; ++o0) {
      for (int64_t o1 = 0; o1 < output[1]; ++o1) {
        for (int64_t o2 = 0; o2 < output[2]; ++o2) {
          const Taps all[3] = {taps(0, o0), taps(1, o1), taps(2, o2)};
          visit(at++, all, Triple{o0, o1, o2});
        }
      }
    }
  }
  // visit(offset in the plane) for the elements of a window, row-major.
  template <class Visit>
  void for_each_element(const Taps (&all)[3], Visit visit) const {
    for (int64_t i0 = all[0].first; i0 < all[0].last; i0 += all[0].step) {
      for (int64_t i1 = all[1].first; i1 < all[1].last; i1 += all[1].step) {
        const int64_t line = (i0 * size[1] + i1) * size[2];
        for (int64_t i2 = all[2].first; i2 < all[2].last; i2 += all[2].step) visit(line + i2);
      }
    }
  }
};

struct PoolSpec {
  Dims kernel, stride, padding, dilation;
  bool ceil_mode;
};
// UsageError with the formula when the numbers do not fit `size`, or a window would have no element.
PoolWindows pool_windows(const char* where, const Dims& size, const PoolSpec& spec);
PoolWindows adaptive_windows(const char* where, const Dims& size, const Dims& output);

// The spatial sizes of `x`, [N, C, S...]; UsageError for other dims and dtypes.
Dims pooled_dims(const char* where, const Tensor& x, int dims);
// [N, C] of `x` and the sizes `t`.
Shape pooled_sizes(const PoolWindows& w, const Tensor& x, const Triple& t);
// "nc" and whole spatial dims.
std::string pool_letters(const PoolWindows& w, const char* spatial);

}  // namespace tutti::facets
