#include "tutti/ops/pooling/window_maxima.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "tutti/core/dtype.h"
#include "tutti/ops/engine/strided_lanes.h"

namespace tutti::facets {
namespace {

// Integers in the order of the values: -0 equal to +0, NaN above all and equal to itself. Comparing them needs no
// branch.
int32_t order_of(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x), magnitude = bits & 0x7fffffff;
  return magnitude > 0x7f800000 ? INT32_MAX : bits < 0 ? -magnitude : magnitude;
}
int64_t order_of(double x) {
  const int64_t bits = std::bit_cast<int64_t>(x), magnitude = bits & INT64_MAX;
  return magnitude > 0x7ff0000000000000 ? INT64_MAX : bits < 0 ? -magnitude : magnitude;
}
template <class Narrow>
int32_t order_of(Narrow x) {
  return order_of(to_float(x));
}

// Below every value, -inf included.
template <class Order>
constexpr Order kPadding = std::numeric_limits<Order>::min();

constexpr int64_t kBand =
    1 << 15;  // orders that are held at once where several lines of outputs allow a choice: they stay near

// A tap: its position in the orders and in the plane, both counted from the first element of the window.
struct Tap {
  int64_t in_orders, in_plane;
};

constexpr int64_t kVectors = 2;  // side by side, so that one waits for its comparison while the other compares

// found[j]: the offset of the maximum of window j from the first element of window 0. Reads as if `count` were whole
// vectors.
template <class Order, int64_t kStep>
void find_in_line(const Order* orders, int64_t count, int64_t step, const std::vector<Tap>& taps, int64_t* found) {
  using V = typename Lanes<Order>::Type;
  constexpr int64_t kLanes = Lanes<Order>::kCount;
  for (int64_t begin = 0; begin < count; begin += kVectors * kLanes) {
    V most[kVectors], tap[kVectors];
    for (V& m : most) m = V{} + kPadding<Order>;
    for (V& t : tap) t = V{};
    for (size_t t = 0; t < taps.size(); ++t) {
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) {
        const V order = load_lanes<Order, kStep>(orders + taps[t].in_orders + (begin + v * kLanes) * step, step);
        const V wins = order > most[v];
        tap[v] = wins ? V{} + static_cast<Order>(t) : tap[v];
        most[v] = wins ? order : most[v];
      }
    }
    Order winner[kVectors * kLanes];
    std::memcpy(winner, tap, sizeof(winner));
    const int64_t n = std::min(kVectors * kLanes, count - begin);
    for (int64_t j = 0; j < n; ++j)
      found[begin + j] = (begin + j) * step + taps[static_cast<size_t>(winner[j])].in_plane;
  }
}

// The orders of the elements that some windows of a plane cover, padding included.
template <class Value, class Order>
class Band {
 public:
  explicit Band(const PoolWindows& w) : w_(w) {
    for (size_t d = 0; d < 3; ++d) covered_[d] = (w.kernel[d] - 1) * w.dilation[d] + 1;
    width_ = covered_[2] + (w.output[2] - 1) * w.stride[2];
    lines_ = std::clamp<int64_t>((kBand / (width_ * covered_[0]) - covered_[1]) / w.stride[1] + 1, 1,
                                 std::max<int64_t>(w.output[1], 1));
    rows_ = covered_[1] + (lines_ - 1) * w.stride[1];
    // The last line is read as whole vectors.
    const int64_t behind = 2 * (kVectors + 1) * Lanes<Order>::kCount * std::max<int64_t>(w.stride[2], 1);
    orders_ = std::make_unique_for_overwrite<Order[]>(static_cast<size_t>(covered_[0] * rows_ * width_ + behind));
    std::fill(orders_.get() + covered_[0] * rows_ * width_, orders_.get() + covered_[0] * rows_ * width_ + behind,
              kPadding<Order>);
    for (int64_t k0 = 0; k0 < w.kernel[0]; ++k0)
      for (int64_t k1 = 0; k1 < w.kernel[1]; ++k1)
        for (int64_t k2 = 0; k2 < w.kernel[2]; ++k2) {
          const int64_t i0 = k0 * w.dilation[0], i1 = k1 * w.dilation[1], i2 = k2 * w.dilation[2];
          taps_.push_back({(i0 * rows_ + i1) * width_ + i2, (i0 * w.size[1] + i1) * w.size[2] + i2});
        }
  }

  void find(const Value* plane, int64_t* indices) {
    for (int64_t o0 = 0; o0 < w_.output[0]; ++o0) {
      for (int64_t o1 = 0; o1 < w_.output[1]; o1 += lines_) {
        const int64_t lines = std::min(lines_, w_.output[1] - o1), first0 = o0 * w_.stride[0] - w_.before[0],
                      first1 = o1 * w_.stride[1] - w_.before[1];
        fill(plane, first0, first1, covered_[1] + (lines - 1) * w_.stride[1]);
        for (int64_t line = 0; line < lines; ++line) {
          int64_t* found = indices + (o0 * w_.output[1] + o1 + line) * w_.output[2];
          const Order* orders = orders_.get() + line * w_.stride[1] * width_;
          if (w_.stride[2] == 1) find_in_line<Order, 1>(orders, w_.output[2], 1, taps_, found);
          else if (w_.stride[2] == 2) find_in_line<Order, 2>(orders, w_.output[2], 2, taps_, found);
          else find_in_line<Order, 0>(orders, w_.output[2], w_.stride[2], taps_, found);
          const int64_t origin = (first0 * w_.size[1] + first1 + line * w_.stride[1]) * w_.size[2] - w_.before[2];
          for (int64_t j = 0; j < w_.output[2]; ++j) found[j] += origin;
        }
      }
    }
  }

 private:
  // Positions below 0 and from the sizes on are padding.
  void fill(const Value* plane, int64_t first0, int64_t first1, int64_t rows) {
    const int64_t before = std::min(w_.before[2], width_),
                  end = std::max(before, std::min(width_, w_.before[2] + w_.size[2]));
    for (int64_t i0 = 0; i0 < covered_[0]; ++i0) {
      for (int64_t i1 = 0; i1 < rows; ++i1) {
        Order* line = orders_.get() + (i0 * rows_ + i1) * width_;
        const int64_t x0 = first0 + i0, x1 = first1 + i1;
        if (x0 < 0 || x0 >= w_.size[0] || x1 < 0 || x1 >= w_.size[1]) {
          std::fill(line, line + width_, kPadding<Order>);
          continue;
        }
        const Value* from = plane + (x0 * w_.size[1] + x1) * w_.size[2];
        std::fill(line, line + before, kPadding<Order>);
        for (int64_t i = before; i < end; ++i) line[i] = order_of(from[i - w_.before[2]]);
        std::fill(line + end, line + width_, kPadding<Order>);
      }
    }
  }

  const PoolWindows& w_;
  Triple covered_;  // positions from the first to the last tap of a window
  int64_t width_, lines_,
      rows_;  // of a line of orders; lines of outputs at once, and the lines of orders that they cover
  std::unique_ptr<Order[]> orders_;
  std::vector<Tap> taps_;
};

}  // namespace

template <class Value>
void find_window_maxima(const PoolWindows& w, const Value* planes, int64_t count, int64_t* indices) {
  const int64_t plane = volume(w.size), outputs = volume(w.output);
  if (count == 0 || outputs == 0) return;
  Band<Value, decltype(order_of(Value{}))> band(w);
  for (int64_t p = 0; p < count; ++p) band.find(planes + p * plane, indices + p * outputs);
}

template void find_window_maxima(const PoolWindows&, const float*, int64_t, int64_t*);
template void find_window_maxima(const PoolWindows&, const double*, int64_t, int64_t*);
template void find_window_maxima(const PoolWindows&, const bfloat16*, int64_t, int64_t*);
template void find_window_maxima(const PoolWindows&, const float16*, int64_t, int64_t*);

}  // namespace tutti::facets
