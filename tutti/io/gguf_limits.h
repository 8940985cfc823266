// The limits that GGUF files keep, for those who read and write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/core/block_format.h"
#include "tutti/core/shape.h"

namespace tutti::io {

inline constexpr uint32_t kGgufVersion = 3;  // the newest
inline constexpr uint32_t kGgufMostDims = 4;
inline constexpr size_t kGgufLongestKey = 65535, kGgufLongestName = 63;  // bytes
inline constexpr const char* kGgufAlignmentKey = "general.alignment";

// Why a key or the name of a tensor is refused; "" when it is not.
std::string gguf_name_fault(std::string_view name, size_t longest);

// The bytes of a tensor, whose rows are whole blocks; nothing when its sizes do not fit. Strides are products of sizes,
// with 1 for 0, so a tensor without elements has sizes that are too large as well; and it must fit when it is decoded.
std::optional<int64_t> gguf_nbytes(BlockFormat format, const Extents& shape);

// Why a tensor of these sizes is refused; "" when it is not.
std::string gguf_shape_fault(BlockFormat format, const Extents& shape);

bool is_gguf_alignment(int64_t value);

}  // namespace tutti::io
