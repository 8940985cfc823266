#include "tutti/io/rotary_rows.h"

#include <cstring>

#include "tutti/core/error.h"

namespace tutti::io {
namespace {

// Calls copy_row(row in half layout, row in pair layout) for all rows.
template <class CopyRow>
void for_each_row(std::span<const std::byte> from, std::span<std::byte> to, int64_t heads, int64_t row_nbytes,
                  CopyRow copy_row) {
  TUTTI_CHECK(heads > 0 && row_nbytes > 0 && from.size() == to.size() && std::ssize(from) % row_nbytes == 0 &&
                  std::ssize(from) / row_nbytes % heads == 0 && std::ssize(from) / row_nbytes / heads % 2 == 0,
              "rotary rows: {} bytes to {} are not {} heads of an even number of rows of {} bytes", from.size(),
              to.size(), heads, row_nbytes);
  const int64_t half = std::ssize(from) / row_nbytes / heads / 2;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t j = 0; j < 2; ++j) copy_row((2 * head + j) * half + i, 2 * (head * half + i) + j);
    }
  }
}

}  // namespace

void rotary_rows_to_half_layout(std::span<const std::byte> from, std::span<std::byte> to, int64_t heads,
                                int64_t row_nbytes) {
  for_each_row(from, to, heads, row_nbytes, [&](int64_t in_halves, int64_t in_pairs) {
    std::memcpy(to.data() + in_halves * row_nbytes, from.data() + in_pairs * row_nbytes,
                static_cast<size_t>(row_nbytes));
  });
}

void rotary_rows_to_pair_layout(std::span<const std::byte> from, std::span<std::byte> to, int64_t heads,
                                int64_t row_nbytes) {
  for_each_row(from, to, heads, row_nbytes, [&](int64_t in_halves, int64_t in_pairs) {
    std::memcpy(to.data() + in_pairs * row_nbytes, from.data() + in_halves * row_nbytes,
                static_cast<size_t>(row_nbytes));
  });
}

}  // namespace tutti::io
