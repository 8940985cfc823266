// Whether two descriptions are of one decoder.
//
// Numbers are compared as f32, which GGUF files hold, and angles by the frequencies that they mean; spreads of first
// weights and names are not compared.
#pragma once

#include <string>

#include "tutti/models/decoder_config.h"

namespace tutti::models {

class PublishedConfig;

// UsageError, naming `path` and listing what differs, unless the description in that file is that of `model`, into
// which its weights would be loaded.
void check_same_decoder(const DecoderConfig& file, const DecoderConfig& model, const std::string& path);

// UsageError, listing what differs, unless `said`, as read from what was written to `place`, describes the decoder
// `config`.
void check_described(const DecoderConfig& config, const DecoderConfig& said, const std::string& place);

// Notes in `file`, which describes `of_file`, what differs from the model.
void note_differences(const DecoderConfig& of_file, const DecoderConfig& model, PublishedConfig& file);

}  // namespace tutti::models
