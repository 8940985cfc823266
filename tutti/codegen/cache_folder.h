// The folder where kernels and choices are kept on disk.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::codegen {

// Why nothing may be kept in `folder`, or "". Makes it, for this user alone, when it is not there: what is read from it is
// executed, so nobody else may be able to put something there.
std::string objection_to_cache_folder(const std::filesystem::path& folder);

}  // namespace tutti::codegen
