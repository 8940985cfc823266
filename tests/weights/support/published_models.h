// Published weights, which are not part of the repository: tests that need them are left out where they are missing.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tutti::testing {

// A file of a model that scripts/fetch_models.sh puts there; it need not exist.
inline std::string published_file(const std::string& model, const std::string& file) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path root = cache != nullptr && *cache != '\0'
                                         ? std::filesystem::path(cache)
                                         : std::filesystem::path(home == nullptr ? "" : home) / ".cache";
  return (root / "tutti/models" / model / file).string();
}

}  // namespace tutti::testing

// Leaves the test out, and says how to fetch the file, where it is missing.
#define TUTTI_NEEDS_PUBLISHED(path, model) \
  if (!std::filesystem::exists(path))      \
  GTEST_SKIP() << "left out: " << (path) << " is missing; fetch it with: scripts/fetch_models.sh " << (model)
