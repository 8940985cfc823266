#include "tutti/models/package_file.h"

#include "tutti/core/error.h"

namespace tutti::models {

namespace fs = std::filesystem;

void refuse_package(const fs::path& path) {
  std::error_code none;
  const fs::path package =
      path.filename() == "model.safetensors" ? path.parent_path() / kPackageFile : path / kPackageFile;
  TUTTI_CHECK(!fs::exists(package, none),
              "{} is a packaged model, whose weights are in {}: `tutti generate`, `tutti chat` and `tutti serve` "
              "write texts with it; anything else takes the model that was packaged",
              path.string(), package.string());
}

}  // namespace tutti::models
