// The tensors of a checkpoint or a model file, for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tutti/core/shape.h"

namespace tutti::train {

struct ListedTensor {
  std::string name;
  std::string type;  // a dtype, or the format of blocks: "bf16", "Q4_K"
  Extents sizes;
  std::string digest;  // 16 hexadecimal digits, equal for equal contents whatever wrote them; "" unless asked for
};

// The tensors of a run folder's newest checkpoint, of a step folder, or of a model file or folder (io/model_file.h),
// sorted by name. Errors of resolve_checkpoint() and ModelFile.
std::vector<ListedTensor> list_tensors(const std::filesystem::path& path, bool with_digests);

}  // namespace tutti::train
