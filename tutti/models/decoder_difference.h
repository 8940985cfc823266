// Whether two descriptions are of one decoder.
#pragma once

#include <string>

#include "tutti/models/decoder_config.h"

namespace tutti::models {

// UsageError, naming `path` and listing the differences, unless the description in that file computes what `model`
// does. Files hold numbers in f32 and angles in several forms: what is compared is what they come to.
void check_same_decoder(const DecoderConfig& file, const DecoderConfig& model, const std::string& path);

}  // namespace tutti::models
