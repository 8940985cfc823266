// A published folder with the weights that a decoder starts with.
#pragma once

#include <filesystem>
#include <functional>

#include "tutti/models/decoder.h"

namespace tutti::models {

// A folder with a model of first weights.
void write_first_weights(
    const DecoderConfig& config, DType dtype, const std::filesystem::path& folder,
    const std::function<void(Decoder&)>& change = [](Decoder&) {});

}  // namespace tutti::models
