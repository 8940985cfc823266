// The header of a GGUF file that is to be written.
#pragma once

#include <string>
#include <vector>

#include "tutti/io/gguf_header.h"

namespace tutti::io {

// Where each tensor lies in a file that holds them in this order; general.alignment may be set in the metadata.
// UsageError for a name, key, sizes or alignment that parse_gguf_header() would refuse.
GgufHeader gguf_layout(std::vector<GgufEntry> entries, ModelMetadata metadata);

// The first bytes of a file of version 3, up to the first byte of data.
std::string gguf_header_bytes(const GgufHeader& header);

}  // namespace tutti::io
