// The names and sizes of a decoder's parameters, without building it.
#pragma once

#include <string>
#include <vector>

#include "tutti/core/shape.h"
#include "tutti/models/decoder_config.h"

namespace tutti::models {

struct DecoderParameter {
  std::string name;
  Extents sizes;
};
// In the order of Decoder::named_parameters(); the experts of a layer are one tensor for each of their weights.
std::vector<DecoderParameter> decoder_parameters(const DecoderConfig& config);
// The numbers that files hold besides, which are not trained: buffers.
std::vector<DecoderParameter> decoder_buffers(const DecoderConfig& config);

}  // namespace tutti::models
