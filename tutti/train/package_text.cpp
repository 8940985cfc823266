#include "tutti/train/package_text.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/io/safetensors.h"
#include "tutti/package/package.h"
#include "tutti/train/ready_model.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

bool holds_weights(const fs::path& file) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".gguf", ".pt", ".pth", ".onnx", ".h5", ".msgpack"};
  const std::string name = file.filename().string();
  return name.ends_with(".index.json") ||
         std::any_of(std::begin(kEndings), std::end(kEndings), [&](std::string_view e) { return name.ends_with(e); });
}

}  // namespace

PackageReport write_packaged_text(const fs::path& model, const fs::path& folder, const PackageTextOptions& options) {
  TUTTI_CHECK(fs::is_directory(model) && is_published(model),
              "package: {} is no folder of a published model; `tutti convert` makes one of a GGUF file or a run",
              model.string());
  TUTTI_CHECK(!fs::exists(folder), "package: {} exists already; give the name of a new folder", folder.string());
  const ReadyModel ready = open_published(model, options.context, options.dtype);
  const fs::path unfinished = folder.string() + ".unfinished";
  fs::remove_all(unfinished);
  fs::create_directories(unfinished);
  try {
    PackageReport report = generate::package_forward(*ready.model, (unfinished / kPackageFile).string(),
                                                     {.context = options.context, .cache_dtype = options.cache_dtype});
    for (const fs::directory_entry& entry : fs::directory_iterator(model)) {
      if (entry.is_regular_file() && !holds_weights(entry.path()))
        fs::copy_file(entry.path(), unfinished / entry.path().filename());
    }
    write_safetensors((unfinished / "model.safetensors").string(), {});  // a published model without weights
    fs::rename(unfinished, folder);
    return report;
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace tutti::train
