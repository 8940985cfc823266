#include "tutti/io/gguf_model_file.h"
#include "tutti/io/model_file_format.h"
#include "tutti/io/safetensors_model_file.h"

namespace tutti::io {
namespace {

const ModelFileFormat* const kModelFileFormats[] = {&kSafetensorsModelFile, &kGgufModelFile};

}  // namespace

std::span<const ModelFileFormat* const> model_file_formats() { return kModelFileFormats; }

}  // namespace tutti::io
