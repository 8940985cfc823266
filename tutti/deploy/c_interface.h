// What the files of the C interface share: C's structs as values of C++, exceptions as codes.
#pragma once

#include <vector>

#include "tutti/deploy/package.h"
#include "tutti/deploy/tutti_runtime.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::deploy::c_interface {

// Calls fn(); an exception becomes the code of the call and the thread's last error.
tutti_code guarded(FunctionRef<void()> fn) noexcept;
// UsageError when it is NULL.
const Package& package_of(const tutti_package* package);
void refuse_null(const void* pointer, const char* what);
// Tensors on the memory of the caller. what: names them in errors.
std::vector<Tensor> tensors_of(const tutti_tensor* list, int32_t count, const char* what);

}  // namespace tutti::deploy::c_interface
