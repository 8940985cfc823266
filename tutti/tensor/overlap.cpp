#include "tutti/tensor/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

struct Dim {
  int64_t steps;  // how far it goes: its size less one
  int64_t stride;
};

// x with a * x = gcd(a, b) modulo b; both are positive.
int64_t bezout(int64_t a, int64_t b) {
  int64_t x = 1, next = 0;
  while (b != 0) {
    const int64_t q = a / b;
    x = std::exchange(next, x - q * next);
    a = std::exchange(b, a - q * b);
  }
  return x;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

// Two positions of a view are one element when their difference d, |d[k]| <= steps[k] and not all 0, has sum d[k] *
// stride[k] = 0. Two dims have a closed form, and the two with most steps come to it; the search tries the steps of the
// others, from the longest stride down, as far as what is left can make up for them.
class Search {
 public:
  // dims: strides are positive.
  explicit Search(InlineDims<Dim> dims) : dims_(dims) {
    std::sort(dims_.begin(), dims_.end(), [](const Dim& a, const Dim& b) { return a.steps > b.steps; });
    std::sort(dims_.begin() + 2, dims_.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
    int64_t reach = 0, divisor = 0;
    for (const Dim& d : dims_) {
      reaches_.push_back(reach += d.steps * d.stride);
      divisors_.push_back(divisor = std::gcd(divisor, d.stride));
    }
  }

  bool finds_any() {
    // One of each pair of differences d and -d: the last dim in it goes forward.
    for (size_t top = 1; top < dims_.size(); ++top) {
      const Dim& d = dims_[top];
      if (top == 1 ? pair_meets() : any_of(top, 1, std::min(d.steps, reaches_[top - 1] / d.stride), 0)) return true;
    }
    return false;
  }

 private:
  // Whether the strides of the first two dims have a common multiple within their steps.
  bool pair_meets() const {
    const int64_t common = divisors_[1];
    return dims_[0].stride / common <= dims_[1].steps && dims_[1].stride / common <= dims_[0].steps;
  }

  // Whether some multiple in [first, last] of stride k leaves a rest of `target` that dims 0 to k - 1 reach.
  bool any_of(size_t k, int64_t first, int64_t last, int64_t target) {
    for (int64_t i = first; i <= last; ++i) {
      if (reached(k - 1, target - i * dims_[k].stride)) return true;
    }
    return false;
  }

  // Whether dims 0 to k make `target`, which may be 0.
  bool reached(size_t k, int64_t target) {
    if (target == 0) return true;
    if (std::abs(target) > reaches_[k] || target % divisors_[k] != 0) return false;
    if (++trials_ > kMostTrials || k == 0) return true;
    const Dim& d = dims_[k];
    const int64_t rest = reaches_[k - 1];
    const int64_t first = std::max(-d.steps, -floor_div(rest - target, d.stride)),
                  last = std::min(d.steps, floor_div(target + rest, d.stride));
    if (k > 1) return any_of(k, first, last, target);
    // i * stride[1] = target modulo stride[0]: the first such i from `first` on.
    const int64_t period = dims_[0].stride / divisors_[1];
    const __int128 i = static_cast<__int128>(target / divisors_[1]) * bezout(d.stride / divisors_[1], period);
    int64_t start = static_cast<int64_t>((i - first) % period);
    if (start < 0) start += period;
    return first + start <= last;
  }

  static constexpr int64_t kMostTrials = int64_t{1} << 16;
  InlineDims<Dim> dims_;
  InlineDims<int64_t> reaches_, divisors_;  // of dims 0 to k together
  int64_t trials_ = 0;
};

}  // namespace

bool overlaps_itself(const Extents& sizes, const Extents& strides) {
  InlineDims<Dim> dims;
  bool is_empty = false, stays = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    is_empty = is_empty || sizes[d] == 0;
    stays = stays || (sizes[d] > 1 && strides[d] == 0);
    if (sizes[d] > 1) dims.push_back({sizes[d] - 1, std::abs(strides[d])});
  }
  if (is_empty || stays) return stays && !is_empty;
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  // Each stride steps over all that the shorter ones reach: the common case, and that of one dim.
  int64_t reach = 0;
  bool nested = true;
  for (const Dim& d : dims) {
    nested = nested && d.stride > reach;
    reach += d.steps * d.stride;
  }
  return !nested && Search(dims).finds_any();
}

void refuse_overlap(const char* what, const Tensor& target) {
  if (target.is_contiguous()) return;
  for (size_t d = 0; d < target.strides().size(); ++d) {
    TUTTI_CHECK(
        target.strides()[d] != 0 || target.extents()[d] < 2 || target.numel() == 0,
        "{}: dim {} of the tensor {} is expanded: its elements are the same memory and cannot be written one by one; "
        "clone() it",
        what, d, describe(target));
  }
  TUTTI_CHECK(!overlaps_itself(target.extents(), target.strides()),
              "{}: the tensor {} with strides {} overlaps itself: some of its elements are the same memory and cannot "
              "be written one by "
              "one; clone() it",
              what, describe(target), target.strides());
}

}  // namespace tutti
