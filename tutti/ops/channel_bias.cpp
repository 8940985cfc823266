#include "tutti/ops/channel_bias.h"

#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reshape.h"

namespace tutti {

Tensor add_channel_bias(const char* where, const Tensor& y, const Tensor& bias) {
  if (!bias.defined()) return y;
  TUTTI_CHECK(bias.ndim() == 1 && bias.size(0) == y.size(1),
              "{}: the bias is {}; expected one element for each of {} outputs", where, describe(bias), y.size(1));
  Shape column = {bias.size(0)};
  for (int d = 2; d < y.ndim(); ++d) column.push_back(1);
  return add(y, reshape(bias, column));
}

}  // namespace tutti
