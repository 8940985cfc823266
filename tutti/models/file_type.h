// The types of model files: which format most of their matrices have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/block_format.h"

namespace tutti::models {

// The values are those of `general.file_type` in GGUF files.
enum class FileType : uint8_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q8_0 = 7,
  q5_0 = 8,
  q5_1 = 9,
  q4_k_m = 15,
  q5_k_m = 17,
  q6_k = 18,
  bf16 = 32,
};

struct FileTypeRow {
  FileType type;
  std::string_view name;  // as users write it: "q4_k_m"
  BlockFormat matrices;   // of most
  BlockFormat head;       // of the head, and of embeddings that are the head
  bool is_quantized() const { return !row_of(matrices).dtype; }
};

const FileTypeRow& row_of(FileType type);
// UsageError lists the known names.
FileType file_type_from_name(std::string_view name);
std::vector<std::string> file_type_names();
// The type of files of plain numbers; nothing for dtypes that models are not computed with.
std::optional<FileType> file_type_of(DType dtype);

}  // namespace tutti::models
