// What the files of the C interface share: C's structs as values of C++, exceptions as codes.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/deploy/package.h"
#include "tutti/deploy/tutti_runtime.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::deploy::c_interface {

// Calls fn(); an exception becomes the code of the call and the thread's last error.
tutti_code guarded(FunctionRef<void()> fn) noexcept;
// Throws an error that becomes this code.
[[noreturn]] void fail(tutti_code code, const std::string& text);
// UsageError when it is NULL.
const Package& package_of(const tutti_package* package);
Package& package_to_change(tutti_package* package);
void refuse_null(const void* pointer, const char* what);
// Tensors on the memory of the caller. what: names them in errors.
std::vector<Tensor> tensors_of(const tutti_tensor* list, int32_t count, const char* what);
// Fills in what the caller's struct has of `info`.
template <class Info>
void hand_out(Info info, Info* to) {
  refuse_null(to, "info");
  TUTTI_CHECK(to->struct_size >= sizeof(size_t), "info->struct_size is {}; set it to sizeof *info", to->struct_size);
  info.struct_size = to->struct_size;
  std::memcpy(to, &info, std::min(to->struct_size, sizeof(Info)));
}

}  // namespace tutti::deploy::c_interface
