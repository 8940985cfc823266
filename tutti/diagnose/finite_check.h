// A check for NaN and infinity in the inputs of collectives, before they spread to every rank.
#pragma once

#include <string_view>

#include "tutti/diagnose/call_record.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

// The default for groups without GroupOptions::check_nan: TUTTI_COMM_CHECK_NAN, "1" for on, "0" or unset for off.
// UsageError for any other value.
bool checks_nan_by_default();

// UsageError when a floating-point `tensor` has an element that is NaN or infinite. The message names the call, the
// tensor's role
// ("input", "input 2"), rank and group, and the index and value of the first such element in row-major order. Any
// strides and devices; a tensor that is not on the host is copied there. Other dtypes always pass.
void check_finite_before(const Tensor& tensor, std::string_view role, const CallRecord& record, int rank,
                         std::string_view group);

}  // namespace tutti::comm
