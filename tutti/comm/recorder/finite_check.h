// A look for NaN and infinity in what a rank gives to a collective, before they are on every rank.
#pragma once

#include <string_view>

#include "tutti/comm/call_record.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

// TUTTI_COMM_CHECK_NAN: "1" on, "0" or unset off; UsageError on anything else. For groups that are not told.
bool checks_nan_by_default();

// UsageError when a floating `tensor` has an element that is NaN or infinite: names the call, the tensor's role
// ("input", "input 2"), rank and group, and the index and value of the first such element in row-major order. Any
// strides and devices: what is not on the host is copied there. Tensors of other dtypes pass.
void check_finite_before(const Tensor& tensor, std::string_view role, const CallRecord& record, int rank, std::string_view group);

}  // namespace tutti::comm
