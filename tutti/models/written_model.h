// A model that was written in another format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/models/file_type.h"
#include "tutti/nn/code_entries.h"

namespace tutti::models {

struct WriteOptions {
  // The type of matrices; the quantized ones are those of GGUF files only. Without it they are as the source stores
  // them where the format has that, else f32.
  std::optional<FileType> type = std::nullopt;
  // A file of a folder holds at most so many bytes of tensors, or one tensor.
  int64_t shard_nbytes = 5'000'000'000;
  // Linear layers of a folder that are held as codes of this kind, and their entries (nn/code_entries.h), which are
  // written instead of their weights.
  std::optional<nn::Quantization> quantization = std::nullopt;
  nn::StateDict codes = {};
};

struct WrittenModel {
  int64_t tensors = 0, parameters = 0;
  int64_t source_nbytes = 0, nbytes = 0;  // of the tensors; those of the source with a head that repeats the embedding
  int64_t files = 1;                      // with tensors
  std::vector<std::string> notes;         // what a reader of the model will miss, whole sentences
};

}  // namespace tutti::models
