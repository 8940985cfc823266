// BatchForward: the forward of a model over the tokens of an engine's batch, op by op or compiled, with the same bits.
#pragma once

#include <functional>

#include "tutti/generate/paged_cache.h"
#include "tutti/graph/compiled.h"
#include "tutti/models/language_model.h"

namespace tutti::generate {

// T tokens; tensors are distributed where ranks divide the model.
struct BatchInputs {
  Tensor tokens, positions, first_keys;  // i32 [T], as models::TokenBatch has them
  Tensor rows;                           // i32 [R]: the tokens whose logits are asked for; undefined: none
  Tensor labelled, labels;               // i64 [L] and i32 [L]: tokens, and what each is to predict; undefined: none
  PagedBatch cached = {};
};

struct BatchOutputs {
  Tensor logits;  // f32 [R, V]
  Tensor losses;  // f32 [L]
};

// Not thread-safe. Model and cache must outlive it.
class BatchForward {
 public:
  // compiled: batches in which all tokens are of one prompt, or one of each text, run a compiled function. Ranks that
  // divide a model must all compile or none: the order of collectives of a compiled function is its own.
  BatchForward(const models::LanguageModel& model, PagedCache& cache, const models::ForwardOptions& options,
               bool compiled);

  BatchOutputs operator()(const BatchInputs& inputs);
  // Tells nothing but zeros where nothing is compiled.
  CompileStatistics statistics() const { return statistics_ ? statistics_() : CompileStatistics{}; }

 private:
  Tensor hidden(const BatchInputs& inputs) const;
  Tensor logits(const Tensor& x_TD, const Tensor& rows) const;

  const models::LanguageModel& model_;
  PagedCache& cache_;
  const models::ForwardOptions options_;
  bool has_memory_ = false;                             // for keys, which the first forward makes
  std::function<Tensor(const BatchInputs&)> compiled_;  // logits, or x where none are asked for
  std::function<CompileStatistics()> statistics_;
};

}  // namespace tutti::generate
