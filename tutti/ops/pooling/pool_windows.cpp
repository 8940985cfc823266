#include "tutti/ops/pooling/pool_windows.h"

#include <algorithm>

namespace tutti::facets {
Taps PoolWindows::taps(size_t d, int64_t o) const {
  if (adaptive) return {o * size[d] / output[d], ((o + 1) * size[d] + output[d] - 1) / output[d], 1};
  int64_t first = o * stride[d] - before[d];
  const int64_t last = std::min(first + (kernel[d] - 1) * dilation[d] + 1, size[d]);
  if (first < 0) first += (-first + dilation[d] - 1) / dilation[d] * dilation[d];
  return {first, std::max(first, last), dilation[d]};
}

std::pair<int64_t, int64_t> PoolWindows::inner_outputs(size_t d) const {
  if (adaptive) return {0, 0};
  const int64_t first = std::min((before[d] + stride[d] - 1) / stride[d], output[d]);
  const int64_t room = size[d] + before[d] - (kernel[d] - 1) * dilation[d] - 1;
  return {first, room < 0 ? first : std::clamp(room / stride[d] + 1, first, output[d])};
}

std::vector<int64_t> PoolWindows::tap_offsets() const {
  std::vector<int64_t> offsets;
  for (int64_t k0 = 0; k0 < kernel[0]; ++k0) {
    for (int64_t k1 = 0; k1 < kernel[1]; ++k1) {
      for (int64_t k2 = 0; k2 < kernel[2]; ++k2)
        offsets.push_back((k0 * dilation[0] * size[1] + k1 * dilation[1]) * size[2] + k2 * dilation[2]);
    }
  }
  return offsets;
}

int64_t PoolWindows::padded_count(size_t d, int64_t o) const {
  if (adaptive) return taps(d, o).count();
  const int64_t first = o * stride[d] - before[d];
  return std::min(first + kernel[d], size[d] + before[d]) - first;
}

PoolWindows pool_windows(const char* where, const Dims& size, const PoolSpec& spec) {
  const int dims = size.ndim();
  PoolWindows w{.dims = dims};
  for (int d = 0; d < dims; ++d) {
    const size_t at = static_cast<size_t>(3 - dims + d);
    const int64_t n = size[static_cast<size_t>(d)], k = spatial_number(where, "kernel", spec.kernel, d, dims);
    const int64_t s = spec.stride.empty() ? k : spatial_number(where, "stride", spec.stride, d, dims);
    const int64_t padding = spatial_number(where, "padding", spec.padding, d, dims),
                  dilation = spatial_number(where, "dilation", spec.dilation, d, dims);
    TUTTI_CHECK(k >= 1 && s >= 1 && dilation >= 1,
                "{}: kernel size {}, stride {}, dilation {} along spatial dim {}; expected 1 or more of each", where, k,
                s, dilation, d);
    const int64_t reach = dilation * (k - 1) + 1;
    TUTTI_CHECK(padding >= 0 && padding <= reach / 2,
                "{}: padding {} along spatial dim {}; expected 0 to half of the {} elements a window reaches over, {}",
                where, padding, d, reach, reach / 2);
    const int64_t span = n + 2 * padding - reach;
    TUTTI_CHECK(span >= 0,
                "{}: no output along spatial dim {}: its size would be {}((size + 2 * padding - dilation * (kernel - "
                "1) - 1) / stride) + 1 = "
                "{}(({} + 2 * {} - {} * ({} - 1) - 1) / {}) + 1, and a window reaches over {} elements",
                where, d, spec.ceil_mode ? "ceil" : "floor", spec.ceil_mode ? "ceil" : "floor", n, padding, dilation, k,
                s, reach);
    int64_t outputs = (spec.ceil_mode ? span + s - 1 : span) / s + 1;
    if ((outputs - 1) * s >= n + padding) --outputs;  // of ceil: a window begins in x or in the padding before it
    w.size[at] = n, w.output[at] = outputs, w.kernel[at] = k, w.stride[at] = s, w.before[at] = padding,
    w.dilation[at] = dilation;
    for (int64_t o = 0; o < outputs; ++o)
      TUTTI_CHECK(w.taps(at, o).count() > 0,
                  "{}: window {} along spatial dim {} has no element: of its {} taps, {} apart from {} on, none lies "
                  "in [0, {})",
                  where, o, d, k, dilation, o * s - padding, n);
  }
  return w;
}

PoolWindows adaptive_windows(const char* where, const Dims& size, const Dims& output) {
  const int dims = size.ndim();
  PoolWindows w{.dims = dims, .adaptive = 1};
  for (int d = 0; d < dims; ++d) {
    const size_t at = static_cast<size_t>(3 - dims + d);
    w.size[at] = size[static_cast<size_t>(d)];
    w.output[at] = spatial_number(where, "the output size", output, d, dims);
    if (w.output[at] == -1) w.output[at] = w.size[at];
    TUTTI_CHECK(w.output[at] >= 1 && w.size[at] >= 1,
                "{}: {} windows over {} elements along spatial dim {}; expected 1 or more of both", where, w.output[at],
                w.size[at], d);
  }
  return w;
}

Dims pooled_dims(const char* where, const Tensor& x, int dims, bool takes_integers) {
  TUTTI_CHECK((is_floating(x.dtype()) && !is_fp8(x.dtype())) || (takes_integers && is_integral(x.dtype())),
              "{}: x is {}; expected f64, f32, bf16{} f16{}, cast() it", where, describe(x),
              takes_integers ? "," : " or", takes_integers ? " or integers" : "");
  TUTTI_CHECK(x.ndim() == dims + 2, "{}: x is {}; expected [N, C, {} spatial dims] or without N", where, describe(x),
              dims);
  Dims result;
  for (int d = 2; d < x.ndim(); ++d) result.push_back(x.extent(d));
  return result;
}

Shape pooled_sizes(const PoolWindows& w, const Tensor& x, const Triple& t) {
  Shape sizes = {x.size(0), x.size(1)};
  for (size_t d = static_cast<size_t>(3 - w.dims); d < 3; ++d) sizes.push_back(t[d]);
  return sizes;
}

std::string pool_letters(const PoolWindows& w, const char* spatial) {
  return std::string("nc") + (spatial + (3 - w.dims));
}

}  // namespace tutti::facets
