#include "tutti/train/package_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/io/safetensors.h"
#include "tutti/models/package_file.h"
#include "tutti/models/published_folder.h"
#include "tutti/package/package.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/data/run_tokenizer.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/step/run_model.h"

namespace tutti::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigFile = "config.resolved.toml";
constexpr const char* kDescription = "model";  // a folder of runs whose model has a path (keep_description)

PackageReport package_published(const fs::path& model, const fs::path& folder, const PackageTextOptions& options) {
  models::write_published_folder(models::PublishedModel(model), folder);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) fs::remove(file);
  }
  write_safetensors((folder / "model.safetensors").string(), {});  // a published model without weights
  const ReadyModel ready =
      open_published(model, generate::packaged_context(options.context), options.dtype, options.keep_blocks);
  return generate::package_forward(
      *ready.model, (folder / models::kPackageFile).string(),
      {.context = options.context, .texts = options.texts, .cache_dtype = options.cache_dtype});
}

// The positions of a run's model do not change its weights, and a package has whole tables of them.
PackageReport package_run(const fs::path& run, const fs::path& folder, const PackageTextOptions& options) {
  TUTTI_CHECK(options.dtype == DType::f32 && !options.keep_blocks,
              "package: {} is a run, which computes in the dtype of its configuration; leave out --dtype and "
              "--quantized",
              run.string());
  Config config = load_config(run / kConfigFile);
  TUTTI_CHECK(config.numerics.mode == "strict",
              "package: {} is a run in {} mode, whose products belong to other libraries; packages hold runs in strict "
              "mode",
              run.string(), config.numerics.mode);
  const auto checkpoint = newest_checkpoint(run / "checkpoint");
  TUTTI_CHECK(checkpoint.has_value(), "package: {} holds no complete checkpoint; train it first", run.string());
  const int64_t context = std::min(options.context, config.data.sequence_length);
  config.data.sequence_length = generate::packaged_context(context);
  const auto model = build_model(config, run);
  open_run_tokenizer(run, read_state(*checkpoint).train.inputs.tokenizer);  // refuses one that was changed
  load_model(*checkpoint, *model);
  fs::create_directories(folder);
  fs::copy_file(run / kConfigFile, folder / kConfigFile);
  copy_run_tokenizer(run, folder);
  if (fs::exists(run / kDescription)) fs::copy(run / kDescription, folder / kDescription, fs::copy_options::recursive);
  return generate::package_forward(*model, (folder / models::kPackageFile).string(),
                                   {.context = context,
                                    .texts = options.texts,
                                    .cache_dtype = options.cache_dtype,
                                    .forward = forward_options(config)});
}

}  // namespace

PackageReport write_packaged_text(const fs::path& model, const fs::path& target, const PackageTextOptions& options) {
  const fs::path normal = target.lexically_normal(), folder = normal.has_filename() ? normal : normal.parent_path();
  models::refuse_package(model);
  const bool is_run = fs::exists(model / kConfigFile);
  TUTTI_CHECK(
      is_run || is_published(model),
      "package: {} is no published model and no run; give a folder with config.json, a GGUF file, or the folder "
      "that `tutti train` has written",
      model.string());
  TUTTI_CHECK(!fs::exists(folder), "package: {} exists already; give the name of a new folder", folder.string());
  const fs::path unfinished = fmt::format("{}.unfinished.{}", folder.string(), getpid());
  TUTTI_CHECK(!fs::exists(unfinished), "package: {} is in the way; remove it", unfinished.string());
  try {
    PackageReport report =
        is_run ? package_run(model, unfinished, options) : package_published(model, unfinished, options);
    fs::rename(unfinished, folder);
    return report;
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace tutti::train
