// The header of a safetensors file: where each tensor is, without reading the data.
//
// File: length of the header (u64, little endian), header (JSON, may end in spaces), data. The header maps each name to
// {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the first byte of data; "__metadata__" maps
// strings to strings.
// Source: the format section of the safetensors README (huggingface/safetensors), version 0.4.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"

namespace tutti::io {

// The longest header that is read or written, in bytes, as in the reference implementation.
inline constexpr int64_t kSafetensorsHeaderLimit = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Extents shape;
  int64_t begin = 0;  // bytes from the first byte of data
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
  int64_t data_start = 0;  // bytes from the start of the file
};

// Parses the header of the file whose bytes are `file`. EnvironmentError, naming `path`, unless the header is within
// the limit and the file, every length is the number of elements times the item size, and the tensors cover the data
// from the first byte to the last without gap or overlap. UsageError, naming path and key (runtime/json_document.h),
// unless it is a JSON object without repeated keys that describes tensors of known dtypes.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view path);

// Where each tensor lies in a file: by descending item size, then by name, so that every tensor is aligned and equal
// content gives equal bytes. `begin` and `end` of the entries are set; data_start is not.
SafetensorsHeader safetensors_layout(std::vector<SafetensorsEntry> entries,
                                     std::map<std::string, std::string> metadata);

// The first bytes of a file: length and JSON, padded so that data starts at a multiple of 8. UsageError when the header
// would be too long, a name is repeated, or a text is not UTF-8.
std::string safetensors_header_bytes(const SafetensorsHeader& header);

std::string_view safetensors_name_of(DType dtype);

}  // namespace tutti::io
