// The makers of all backends, and the usual one: for backend.cpp.
#pragma once

#include <memory>

#include "tutti/symm/backend.h"

namespace tutti::comm::symm {

std::unique_ptr<Backend> make_cuda_backend();
std::unique_ptr<Backend> make_native_backend();
std::unique_ptr<Backend> make_nccl_backend();
std::unique_ptr<Backend> make_nvshmem_backend();
std::unique_ptr<Backend> make_threads_backend();

// The result of default_backend_name() without TUTTI_SYMM_BACKEND.
const char* usual_backend_name();

}  // namespace tutti::comm::symm
