#include "tutti/codegen/gemm/workspace.h"

#include <sys/mman.h>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

constexpr int64_t kPage = 4096, kHugePage = int64_t{2} << 20;

}  // namespace

void Workspace::grow(int64_t nbytes) {
  const int64_t unit = nbytes < kHugePage ? kPage : kHugePage, rounded = (nbytes + unit - 1) / unit * unit;
  size_ = 0;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(unit), static_cast<size_t>(rounded))));
  TUTTI_CHECK_ENV(memory_, "gemm: no memory for {} bytes of workspace", rounded);
  size_ = rounded;
  // Large pages where the system grants them: a strip of A is read from another page at every step otherwise.
  if (unit == kHugePage) madvise(memory_.get(), static_cast<size_t>(rounded), MADV_HUGEPAGE);
}

GemmWorkspaces& gemm_workspaces() {
  thread_local GemmWorkspaces mine;
  return mine;
}

}  // namespace tutti::codegen
