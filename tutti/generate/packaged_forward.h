// A model's forward over the tokens of an engine's batch, with its cache, in a package: what an engine needs of a model
// to write texts, without the model.
//
//   package_forward(model, "decode.tutti", {.context = 1024, .texts = 4});
//   Engine engine(model_without_weights, tokenizer, {.packaged = PackagedForward::open("decode.tutti")});
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
  int64_t context = 1024;  // positions of a text; rounded up to whole tables of 8 pages
  // That write a token at once, and whose keys the cache holds; at most 128. More requests of an engine share its
  // pages.
  int64_t texts = 1;
  int64_t most_tokens = 65, step = 16;    // prompts are read in parts of 1, 1 + step, ... most_tokens
  std::optional<DType> cache_dtype = {};  // as EngineOptions::cache_dtype
  models::ForwardOptions forward = {};
  std::vector<codegen::CpuTarget> levels = {};  // empty: all
};

// The positions of a package for this context: whole tables of 8 pages. The model must have as many.
int64_t packaged_context(int64_t context);

// Writes the package; its state are the pages of the cache. The model must have its weights, in memory of this process.
// Every combination of a length of tables with the tokens of a part, or with one token of all texts, is proved
// (package/package.h).
PackageReport package_forward(models::LanguageModel& model, const std::string& path,
                              const PackagedForwardOptions& options = {});

// Not thread-safe: it has the state of one cache.
class PackagedForward {
 public:
  // PackageError; UsageError for a package of something else.
  static std::shared_ptr<PackagedForward> open(const std::string& path);

  int64_t context() const { return context_; }
  int64_t texts() const { return texts_; }
  int64_t vocab_size() const { return vocab_; }
  DType cache_dtype() const { return cache_dtype_; }
  // What the cache must be made with whose pages the inputs name.
  PagedCacheOptions cache_options() const;
  // With the bits of BatchForward, for no tokens that are labelled. Texts that write a token each go through the model
  // together, up to texts() of them, and prompts one after another.
  BatchOutputs operator()(const BatchInputs& inputs);
  // How often operator() has called the package.
  int64_t calls() const { return calls_; }

 private:
  PackagedForward() = default;
  // Consecutive tokens of a batch: B neighbours of a call that write a token each, or some of one text.
  struct Part {
    size_t call;
    int64_t text, texts, of_text;  // in the call; of_text: the first token in its text
    int64_t first, end;            // in the batch
  };
  std::vector<Part> parts_of(const BatchInputs& inputs) const;
  // The logits of the rows of a part, in their order.
  Tensor run(const BatchInputs& inputs, const Part& part, const std::vector<int32_t>& rows);

  std::shared_ptr<const deploy::Package> package_;
  std::shared_ptr<deploy::PackageState> state_;
  int64_t context_ = 0, texts_ = 1, most_tokens_ = 1, step_ = 1, vocab_ = 0, calls_ = 0;
  DType cache_dtype_ = DType::f32;
};

}  // namespace tutti::generate
