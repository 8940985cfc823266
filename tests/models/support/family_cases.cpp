#include "tests/models/support/family_cases.h"

namespace tutti::models {

const std::filesystem::path& families_folder() {
  static const std::filesystem::path folder = TUTTI_SOURCE_DIR "/tests/models/families";
  return folder;
}

}  // namespace tutti::models
