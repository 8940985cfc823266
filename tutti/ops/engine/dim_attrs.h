// DimAttrs: the attrs of ops whose only option is a dim.
#pragma once

#include "tutti/ops/engine/attrs.h"

namespace tutti {

struct DimAttrs {
  int64_t dim;  // normalized
  static constexpr auto fields() { return field_list(field::number<&DimAttrs::dim>("dim")); }
};

}  // namespace tutti
