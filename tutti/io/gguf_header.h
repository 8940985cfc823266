// The header of a GGUF file: metadata and the place of each tensor, without reading the data.
//
// File: "GGUF", version (u32), number of tensors and of keys (u64), keys, tensors, padding to the alignment, data. A
// key is its name, a type id (u32) and the value; texts are a length (u64) and bytes; an array is a type id, a count
// (u64) and the elements. A tensor is its name, number of dims (u32), sizes (u64, the fastest-varying first), type id
// (u32) and offset (u64) from the first byte of data. Everything is little-endian.
// Source: docs/gguf.md and src/gguf.cpp of ggml (ggml-org/ggml), version 3; version 2 has the same layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/block_format.h"
#include "tutti/core/shape.h"
#include "tutti/io/model_metadata.h"

namespace tutti::io {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr int64_t kGgufAlignment = 32;  // where general.alignment does not say otherwise

struct GgufEntry {
  std::string name;
  BlockFormat format = BlockFormat::f32;
  Extents shape;      // row-major: the last size is that of a row, a whole number of blocks
  int64_t begin = 0;  // bytes from the first byte of data
  int64_t end = 0;
};

struct GgufHeader {
  uint32_t version = 3;
  ModelMetadata metadata;
  std::vector<GgufEntry> entries;  // in the order of the file, which is that of their data
  int64_t alignment = kGgufAlignment;
  int64_t data_start = 0;  // bytes from the start of the file
};

// Parses the header of the file whose bytes are `file`. As strict as ggml: every length must fit in the file, keys and
// tensor names are unique UTF-8 without zero bytes (names of 1 to 63 bytes, keys of 1 to 65535), tensors have at most 4
// dims, rows are whole blocks, and data lies in the order of the tensors, each padded to the alignment.
// EnvironmentError, naming `path`, the key or tensor, and the byte, for anything else.
GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view path);

// `nbytes` rounded up to a multiple of `alignment`.
constexpr int64_t gguf_padded(int64_t nbytes, int64_t alignment) {
  return (nbytes + alignment - 1) / alignment * alignment;
}

}  // namespace tutti::io
