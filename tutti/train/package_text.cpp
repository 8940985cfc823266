#include "tutti/train/package_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "tutti/core/error.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/io/safetensors.h"
#include "tutti/models/package_file.h"
#include "tutti/models/published_folder.h"
#include "tutti/package/package.h"
#include "tutti/train/ready_model.h"

namespace tutti::train {

namespace fs = std::filesystem;

PackageReport write_packaged_text(const fs::path& model, const fs::path& target, const PackageTextOptions& options) {
  const fs::path normal = target.lexically_normal(), folder = normal.has_filename() ? normal : normal.parent_path();
  TUTTI_CHECK(is_published(model), "package: {} is no published model; `tutti convert` makes one of a run",
              model.string());
  TUTTI_CHECK(!fs::exists(folder), "package: {} exists already; give the name of a new folder", folder.string());
  const fs::path unfinished = fmt::format("{}.unfinished.{}", folder.string(), getpid());
  TUTTI_CHECK(!fs::exists(unfinished), "package: {} is in the way; remove it", unfinished.string());
  try {
    models::write_published_folder(models::PublishedModel(model), unfinished);
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(unfinished)) files.push_back(entry.path());
    for (const fs::path& file : files) {
      const std::string name = file.filename().string();
      if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) fs::remove(file);
    }
    write_safetensors((unfinished / "model.safetensors").string(), {});  // a published model without weights
    const ReadyModel ready =
        open_published(model, generate::packaged_context(options.context), options.dtype, options.keep_blocks);
    PackageReport report = generate::package_forward(*ready.model, (unfinished / models::kPackageFile).string(),
                                                     {.context = options.context, .cache_dtype = options.cache_dtype});
    fs::rename(unfinished, folder);
    return report;
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace tutti::train
