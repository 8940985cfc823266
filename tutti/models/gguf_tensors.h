// The tensors of a decoder as a GGUF file holds them: their names, sizes and formats.
#pragma once

#include <vector>

#include "tutti/io/model_file.h"
#include "tutti/models/gguf_formats.h"

namespace tutti::models {

struct GgufTensor {
  ModelTensor entry;
  const SourceWeight* weight;
  const SourceWeight* second = nullptr;  // whose rows follow those of the first in each expert

  int64_t nbytes() const;
};
// In the order of the weights, which must outlive them.
std::vector<GgufTensor> gguf_tensors(const DecoderConfig& config, const std::vector<SourceWeight>& weights,
                                     GgufFormats& formats);

}  // namespace tutti::models
