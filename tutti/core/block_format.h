// The element formats of GGUF tensors: plain numbers, and blocks of quantized numbers that share scales.
//
// A block format is no DType: its elements have no size of their own. A row of a tensor is a whole number of blocks,
// and block_codec.h converts rows from and to f32.
// Source: ggml's table of types (ggml-org/ggml, ggml.h and ggml-common.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tutti/core/dtype.h"

namespace tutti {

// The values are the type ids that files hold.
enum class BlockFormat : uint8_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

struct BlockFormatRow {
  BlockFormat format;
  std::string_view name;                      // as GGUF's tools print it: "Q4_K"
  int32_t elements;                           // of a block; 1 for plain numbers
  int32_t nbytes;                             // of a block
  std::optional<DType> dtype = std::nullopt;  // of plain numbers; nothing for quantized ones
};

// The row of a type id; nullptr when there is none.
const BlockFormatRow* find_block_format(uint32_t id);
const BlockFormatRow& row_of(BlockFormat format);
inline std::string_view name_of(BlockFormat format) { return row_of(format).name; }
// UsageError lists the known names.
BlockFormat block_format_from_name(std::string_view name);
// The format of plain numbers of `dtype`; nothing for those that GGUF does not have (fp8, u8, bool).
std::optional<BlockFormat> block_format_of(DType dtype);

// The bytes of `numel` elements that are whole rows; nothing when they do not fit int64. InternalError unless `numel`
// is a multiple of the block.
std::optional<int64_t> block_nbytes(BlockFormat format, int64_t numel);

}  // namespace tutti
