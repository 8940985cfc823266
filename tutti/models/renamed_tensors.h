// A model file under other names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/io/model_file.h"

namespace tutti::models {

// The tensors of `file` under the names that `rename` gives them, without those for which it gives none. UsageError,
// naming the file and both tensors, when two get one name.
ModelFile renamed_tensors(const ModelFile& file,
                          const std::function<std::optional<std::string>(std::string_view)>& rename);

}  // namespace tutti::models
