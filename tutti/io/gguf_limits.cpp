#include "tutti/io/gguf_limits.h"

#include <algorithm>
#include <bit>

#include "tutti/core/error.h"
#include "tutti/io/utf8.h"

namespace tutti::io {

std::string gguf_name_fault(std::string_view name, size_t longest) {
  if (name.empty()) return "is empty";
  if (name.size() > longest) return fmt::format("has {} bytes, the limit is {}", name.size(), longest);
  if (const size_t zero = name.find('\0'); zero != std::string_view::npos)
    return fmt::format("has a zero byte at {}", zero);
  if (const size_t valid = utf8_valid_prefix_nbytes(name); valid != name.size())
    return fmt::format("is not UTF-8 at byte {} of {}", valid, name.size());
  return "";
}

std::optional<int64_t> gguf_nbytes(BlockFormat format, const Extents& shape) {
  int64_t reach = static_cast<int64_t>(sizeof(double)), numel = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(reach, std::max<int64_t>(size, 1), &reach)) return std::nullopt;
    numel *= size;
  }
  return block_nbytes(format, numel);
}

std::string gguf_shape_fault(BlockFormat format, const Extents& shape) {
  const BlockFormatRow& row = row_of(format);
  const int64_t length = shape.empty() ? 1 : shape.back();
  if (length % row.elements != 0)
    return fmt::format("its rows of {} elements are no whole blocks of {}, which are of {}", length, row.name,
                       row.elements);
  if (!gguf_nbytes(format, shape)) return fmt::format("its sizes {} are more than any file holds", shape);
  return "";
}

bool is_gguf_alignment(int64_t value) { return value > 0 && std::has_single_bit(static_cast<uint64_t>(value)); }

}  // namespace tutti::io
