// Where the windows of pooling lie. One and two dims are three with leading dims of size 1.
#pragma once

#include <utility>
#include <vector>

#include "tutti/ops/conv/conv_geometry.h"
#include "tutti/ops/engine/attrs.h"

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

  // The outputs [first, last) of dim d whose windows have all their taps: the same number of them, evenly apart.
  std::pair<int64_t, int64_t> inner_outputs(size_t d) const;

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
  // The same in two forms: line(output, count, first) for windows that have all their taps, `count` side by side, of
  // which the first begins at offset `first` of the plane and the next stride[2] further; visit() for the others.
  template <class Visit, class Line>
  void for_each_or_line(Visit visit, Line line) const {
    std::pair<int64_t, int64_t> inner[3];
    for (size_t d = 0; d < 3; ++d) inner[d] = inner_outputs(d);
    int64_t at = 0;
    for (int64_t o0 = 0; o0 < output[0]; ++o0) {
      for (int64_t o1 = 0; o1 < output[1]; ++o1, at += output[2]) {
        const bool in_lines =
            o0 >= inner[0].first && o0 < inner[0].second && o1 >= inner[1].first && o1 < inner[1].second;
        const int64_t begin = in_lines ? inner[2].first : output[2], end = in_lines ? inner[2].second : output[2];
        const auto one = [&](int64_t o2) {
          const Taps all[3] = {taps(0, o0), taps(1, o1), taps(2, o2)};
          visit(at + o2, all, Triple{o0, o1, o2});
        };
        for (int64_t o2 = 0; o2 < begin; ++o2) one(o2);
        if (begin < end) {
          const int64_t line_at = ((o0 * stride[0] - before[0]) * size[1] + o1 * stride[1] - before[1]) * size[2];
          line(at + begin, end - begin, line_at + begin * stride[2] - before[2]);
        }
        for (int64_t o2 = end; o2 < output[2]; ++o2) one(o2);
      }
    }
  }
  // From the first element of a window to each, row-major; for windows that have all their taps.
  std::vector<int64_t> tap_offsets() const;

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
  static constexpr auto fields() {
    return field_list(field::number<&PoolWindows::dims>("dims"), field::number<&PoolWindows::size>("size"),
                      field::number<&PoolWindows::output>("output"), field::number<&PoolWindows::kernel>("kernel"),
                      field::number<&PoolWindows::stride>("stride"), field::number<&PoolWindows::before>("before"),
                      field::number<&PoolWindows::dilation>("dilation"),
                      field::number<&PoolWindows::adaptive>("adaptive"));
  }
};

struct PoolSpec {
  Dims kernel, stride, padding, dilation;
  bool ceil_mode;
};
// UsageError with the formula when the numbers do not fit `size`, or a window would have no element.
PoolWindows pool_windows(const char* where, const Dims& size, const PoolSpec& spec);
// An output size of -1 is that of the dim.
PoolWindows adaptive_windows(const char* where, const Dims& size, const Dims& output);

// The spatial sizes of `x`, [N, C, S...]; UsageError for other dims and dtypes.
Dims pooled_dims(const char* where, const Tensor& x, int dims, bool takes_integers = false);
// [N, C] of `x` and the sizes `t`.
Shape pooled_sizes(const PoolWindows& w, const Tensor& x, const Triple& t);
// "nc" and whole spatial dims.
std::string pool_letters(const PoolWindows& w, const char* spatial);

}  // namespace tutti::facets
