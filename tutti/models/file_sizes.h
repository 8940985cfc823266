// What the weights of a decoder take in GGUF files of each type, and in memory, computed from its description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/models/decoder_config.h"
#include "tutti/models/file_type.h"

namespace tutti::models {

// Weights of all layers that have one name in a layer: "self_attn.q_proj", "mlp.down_proj".
struct WeightKind {
  std::string name;
  int64_t tensors = 0, parameters = 0;
  std::vector<int64_t> nbytes = {};  // in a file of each type
};

struct FileSizes {
  std::vector<FileType> types;
  std::vector<WeightKind> kinds;
  // For each type file_nbytes counts all tensors with the padding between them, without header and vocabulary, and
  // kept_nbytes the weights of a process that keeps blocks as they are and computes with the others in f32
  // (nn::LoadOptions::keep_blocks).
  std::vector<int64_t> file_nbytes, kept_nbytes;
};
FileSizes file_sizes(const DecoderConfig& config, const std::vector<FileType>& types);

// A table of them, in GB of 10^9 bytes.
std::string file_sizes_text(const DecoderConfig& config, const FileSizes& sizes);

}  // namespace tutti::models
