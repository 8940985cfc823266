// A tensor over the pages of a mapped file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"
#include "tutti/io/mapped_file.h"

namespace tutti {
class Tensor;
}

namespace tutti::io {

// The numbers of `bytes`, which lie in `file`, as a read-only view of its pages; they stay mapped as long as a view
// exists. Data that is not aligned to its item size (as in files by old writers) is a copy in new memory instead.
Tensor mapped_tensor(const std::shared_ptr<const MappedFile>& file, std::span<const std::byte> bytes,
                     const Extents& sizes, DType dtype);

}  // namespace tutti::io
