// GGUF files as model files.
#pragma once

#include "tutti/io/model_file_format.h"

namespace tutti::io {

extern const ModelFileFormat kGgufModelFile;

}  // namespace tutti::io
