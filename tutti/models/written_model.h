// A model that was written in another format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/block_format.h"

namespace tutti::models {

struct WriteOptions {
  // The type of matrices: F32, BF16, F16, or where a format has it Q8_0. Without it they are as the source stores them
  // where the format has that, else f32.
  std::optional<BlockFormat> type = std::nullopt;
  // A file of a folder holds at most so many bytes of tensors, or one tensor.
  int64_t shard_nbytes = 5'000'000'000;
};

struct WrittenModel {
  int64_t tensors = 0, parameters = 0;
  int64_t source_nbytes = 0, nbytes = 0;  // of the tensors
  int64_t files = 1;                      // with tensors
  std::vector<std::string> notes;         // what a reader of the model will miss, whole sentences
};

}  // namespace tutti::models
