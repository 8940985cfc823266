#include "tutti/ops/conv/conv_geometry.h"

#include <algorithm>
#include <cstring>

#include "tutti/ops/convolution.h"

namespace tutti::facets {
namespace {

template <class Word>
void write_columns(const ConvGeometry& g, const Word* x, int64_t channels, int64_t begin, int64_t end, Word* columns,
                   int64_t stride) {
  const int64_t plane = volume(g.size);
  for (int64_t c = 0; c < channels; ++c, x += plane) {
    for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0) {
      for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1) {
        for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2, columns += stride) {
          // Line by line of outputs; the first and last may be cut.
          for (int64_t p = begin; p < end;) {
            const int64_t line = p / g.output[2], first = p % g.output[2],
                          last = std::min(g.output[2], first + end - p);
            const int64_t i0 = line / g.output[1] * g.stride[0] - g.before[0] + k0 * g.dilation[0];
            const int64_t i1 = line % g.output[1] * g.stride[1] - g.before[1] + k1 * g.dilation[1];
            Word* out = columns + (p - begin);
            p += last - first;
            if (i0 < 0 || i0 >= g.size[0] || i1 < 0 || i1 >= g.size[1]) {
              std::fill(out, out + (last - first), Word{0});
              continue;
            }
            // Outputs [from, to) of the line meet x: 0 <= j * stride + shift < size.
            const int64_t shift = k2 * g.dilation[2] - g.before[2], step = g.stride[2];
            const int64_t from = std::clamp(shift >= 0 ? int64_t{0} : (-shift + step - 1) / step, first, last);
            const int64_t to =
                std::clamp(g.size[2] - shift <= 0 ? int64_t{0} : (g.size[2] - shift - 1) / step + 1, from, last);
            const Word* in = x + (i0 * g.size[1] + i1) * g.size[2] + shift;
            std::fill(out, out + (from - first), Word{0});
            if (step == 1) std::copy(in + from, in + to, out + (from - first));
            else
              for (int64_t j = from; j < to; ++j) out[j - first] = in[j * step];
            std::fill(out + (to - first), out + (last - first), Word{0});
          }
        }
      }
    }
  }
}

}  // namespace

bool ConvGeometry::is_pointwise() const {
  return volume(kernel) == 1 && stride == Triple{1, 1, 1} && before == Triple{0, 0, 0} && size == output;
}

int64_t spatial_number(const char* where, const char* what, const Dims& list, int dim, int dims) {
  TUTTI_CHECK(list.ndim() == 1 || list.ndim() == dims,
              "{}: {} has {} numbers; expected 1 or {}, one for each spatial dim", where, what, list.ndim(), dims);
  return list[list.ndim() == 1 ? 0 : static_cast<size_t>(dim)];
}

ConvGeometry conv_geometry(const char* where, const Dims& size, const Dims& kernel, const ConvOptions& o) {
  const int dims = size.ndim();
  ConvGeometry g{.dims = dims, .groups = o.groups};
  for (int d = 0; d < dims; ++d) {
    const size_t at = static_cast<size_t>(3 - dims + d), from = static_cast<size_t>(d);
    const int64_t k = kernel[from], s = spatial_number(where, "stride", o.stride, d, dims),
                  dilation = spatial_number(where, "dilation", o.dilation, d, dims);
    TUTTI_CHECK(k >= 1 && s >= 1 && dilation >= 1,
                "{}: kernel size {}, stride {}, dilation {} along spatial dim {}; expected 1 or more of each", where, k,
                s, dilation, d);
    const int64_t reach = dilation * (k - 1);
    int64_t before = 0, after = 0;
    if (o.mode == ConvPadding::same) {
      TUTTI_CHECK(s == 1, "{}: padding 'same' needs stride 1; it is {} along spatial dim {}", where, s, d);
      before = reach / 2, after = reach - before;
    } else if (o.mode == ConvPadding::given) {
      before = after = spatial_number(where, "padding", o.padding, d, dims);
      TUTTI_CHECK(before >= 0, "{}: the padding is {} along spatial dim {}; expected 0 or more", where, before, d);
    }
    const int64_t span = size[from] + before + after - reach - 1;
    TUTTI_CHECK(span >= 0,
                "{}: no output along spatial dim {}: its size would be floor((size + padding - dilation * (kernel - 1) "
                "- 1) / stride) + 1 = "
                "floor(({} + {} - {} * ({} - 1) - 1) / {}) + 1 = {}; the kernel reaches over {} elements",
                where, d, size[from], before + after, dilation, k, s, -((-span + s - 1) / s) + 1, reach + 1);
    g.size[at] = size[from], g.kernel[at] = k, g.stride[at] = s, g.dilation[at] = dilation, g.before[at] = before;
    g.output[at] = span / s + 1;
  }
  return g;
}

void write_columns(const ConvGeometry& g, const char* x, int64_t item, int64_t channels, int64_t begin, int64_t end,
                   char* columns, int64_t stride) {
  const auto with = [&]<class Word>(Word) {
    write_columns<Word>(g, reinterpret_cast<const Word*>(x), channels, begin, end, reinterpret_cast<Word*>(columns),
                        stride);
  };
  if (item == 8) with(uint64_t{});
  else if (item == 4) with(uint32_t{});
  else with(uint16_t{});
}

}  // namespace tutti::facets
