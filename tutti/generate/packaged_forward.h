// A model's forward over the tokens of an engine's batch, with its cache, in a package: what an engine needs of a model
// to write one text at a time, without the model.
//
//   package_forward(model, "decode.tutti", {.context = 1024});
//   Engine engine(model_without_weights, tokenizer, {.max_requests = 1, .packaged =
//   PackagedForward::open("decode.tutti")});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/generate/batch_forward.h"

namespace tutti {
struct PackageReport;
namespace deploy {
class Package;
class PackageState;
}  // namespace deploy
}  // namespace tutti

namespace tutti::generate {

struct PackagedForwardOptions {
  int64_t context = 1024;                 // positions of a text; rounded up to whole tables of 8 pages
  int64_t most_tokens = 65, step = 16;    // prompts are read in parts of 1, 1 + step, ... most_tokens
  std::optional<DType> cache_dtype = {};  // as EngineOptions::cache_dtype
  models::ForwardOptions forward = {};
  std::vector<codegen::CpuTarget> levels = {};  // empty: all
};

// The positions of a package for this context: whole tables of 8 pages. The model must have as many.
int64_t packaged_context(int64_t context);

// Writes the package; its state are the pages of the cache. The model must have its weights, in memory of this process.
// Every combination of parts and lengths of tables is proved (package/package.h).
PackageReport package_forward(models::LanguageModel& model, const std::string& path,
                              const PackagedForwardOptions& options = {});

// Not thread-safe: it has the state of one cache.
class PackagedForward {
 public:
  // PackageError; UsageError for a package of something else.
  static std::shared_ptr<PackagedForward> open(const std::string& path);

  int64_t context() const { return context_; }
  int64_t vocab_size() const { return vocab_; }
  DType cache_dtype() const { return cache_dtype_; }
  // What the cache must be made with whose pages the inputs name.
  PagedCacheOptions cache_options() const;
  // With the bits of BatchForward, for the tokens of one text, and none that are labelled.
  BatchOutputs operator()(const BatchInputs& inputs);

 private:
  PackagedForward() = default;
  // The largest part that the package takes of so many tokens.
  int64_t part_of(int64_t tokens) const;

  std::shared_ptr<const deploy::Package> package_;
  std::shared_ptr<deploy::PackageState> state_;
  int64_t context_ = 0, most_tokens_ = 1, step_ = 1, vocab_ = 0;
  DType cache_dtype_ = DType::f32;
};

}  // namespace tutti::generate
