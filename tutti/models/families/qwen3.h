// Qwen3: a decoder with norms of query and key heads.
#pragma once

#include <string_view>

#include "tutti/models/decoder_config.h"

namespace tutti::models {

// The Qwen3 of these sizes.
DecoderConfig qwen3(const DecoderSizes& sizes);
// The sizes of a flavor. UsageError, listing the flavors, for any other name.
DecoderSizes qwen3_sizes(std::string_view flavor);

}  // namespace tutti::models
