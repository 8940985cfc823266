// Folders of packaged models: they have a model's description and no weights, which are in the package
// (train/package_text.h).
#pragma once

#include <filesystem>

namespace tutti::models {

inline constexpr const char* kPackageFile = "decode.tutti";

// UsageError where `path` is such a folder, or the file without tensors in it, for those who read tensors.
void refuse_package(const std::filesystem::path& path);

}  // namespace tutti::models
