// The order of the rows of rotary projections.
//
// Rotary embedding turns pairs of a head's D features. In half layout (transformers, this library) a pair is rows i and
// i + D/2 of the head, in pair layout (Meta's files, GGUF files of Llama models) rows 2 i and 2 i + 1: row 2 i + j of
// the latter is row j D/2 + i of the former.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::io {

// Copies the rows of a weight or bias of queries or keys in the other layout. A row is any `row_nbytes` bytes: the
// numbers or whole blocks of a row of a weight, one number of a bias. `heads` is the number of heads that the tensor
// has, which for keys is that of key heads. UsageError unless `from` is that many heads of an even number of rows, and
// `to` has the same size; they must not overlap.
void rotary_rows_to_half_layout(std::span<const std::byte> from, std::span<std::byte> to, int64_t heads,
                                int64_t row_nbytes);
void rotary_rows_to_pair_layout(std::span<const std::byte> from, std::span<std::byte> to, int64_t heads,
                                int64_t row_nbytes);

}  // namespace tutti::io
