// Where the windows of convolutions lie. One and two dims are three with leading dims of size 1.
#pragma once

#include <array>

#include "tutti/ops/engine/op_def.h"

namespace tutti {
struct ConvOptions;
}

namespace tutti::facets {

using Triple = std::array<int64_t, 3>;
inline int64_t volume(const Triple& t) { return t[0] * t[1] * t[2]; }

struct ConvGeometry {
  int64_t dims;                                            // 1 to 3
  Triple size{1, 1, 1}, kernel{1, 1, 1}, output{1, 1, 1};  // of x, weight, y
  Triple stride{1, 1, 1}, before{0, 0, 0}, dilation{1, 1, 1};
  int64_t groups;

  // Whether windows are single elements in their order: the columns are x itself.
  bool is_pointwise() const;
  static constexpr auto fields() {
    return field_list(field::number<&ConvGeometry::dims>("dims"), field::number<&ConvGeometry::size>("size"),
                      field::number<&ConvGeometry::kernel>("kernel"), field::number<&ConvGeometry::output>("output"),
                      field::number<&ConvGeometry::stride>("stride"), field::number<&ConvGeometry::before>("before"),
                      field::number<&ConvGeometry::dilation>("dilation"),
                      field::number<&ConvGeometry::groups>("groups"));
  }
};

// The number of `list` for spatial dim `dim` of `dims`; a list of one holds for all. UsageError naming `what` for
// another length.
int64_t spatial_number(const char* where, const char* what, const Dims& list, int dim, int dims);

// UsageError with the formula when `options` do not fit. The lists hold one number for each spatial dim.
ConvGeometry conv_geometry(const char* where, const Dims& size, const Dims& kernel, const ConvOptions& options);

// columns[(c * taps + t) * stride + p - begin] is what tap t of the kernel meets at output p of channel c, for output
// positions [begin, end) and `channels` channels of x, each `volume(size)` elements of `item` bytes behind the other;
// zero bits outside of x.
void write_columns(const ConvGeometry& g, const char* x, int64_t item, int64_t channels, int64_t begin, int64_t end,
                   char* columns, int64_t stride);

}  // namespace tutti::facets
