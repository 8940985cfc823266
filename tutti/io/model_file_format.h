// A format of model files: one row of the list that model_file.cpp reads.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/io/model_file.h"

namespace tutti::io {

struct ModelFileFormat {
  std::string_view name;
  std::string_view ending;  // of file names, ".gguf"
  // Whether a file that begins with `head` has this format; `nbytes` is the size of the file.
  bool (*has_content)(std::string_view head, size_t nbytes);
  // The file that stands for a model of this format in the folder `path`, or beside `path`, which does not exist;
  // nothing when there is none.
  std::optional<std::filesystem::path> (*find)(const std::filesystem::path& path);
  std::string_view found_as;  // how find() knows a file, for messages
  std::unique_ptr<const ModelFileReader> (*open)(const std::filesystem::path& path);
  std::unique_ptr<ModelFileWriter> (*create)(const std::filesystem::path& path, std::vector<ModelTensor> entries,
                                             ModelMetadata metadata);
};

// All formats, in the order in which files are compared with them.
std::span<const ModelFileFormat* const> model_file_formats();

// Bytes of a file that has_content() sees; fewer when the file is shorter.
inline constexpr size_t kModelFileHead = 64;

}  // namespace tutti::io
