// Safetensors files, and several of them beside an index, as model files.
#pragma once

#include "tutti/io/model_file_format.h"

namespace tutti::io {

extern const ModelFileFormat kSafetensorsModelFile;

}  // namespace tutti::io
