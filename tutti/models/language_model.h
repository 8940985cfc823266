// LanguageModel: a model over tokens, as training, evaluation and sampling see it.
//
// It is built from the description that its family (family.h) gives of a flavor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/models/token_batch.h"
#include "tutti/nn/module.h"

namespace tutti::parallel {
struct PlanEntry;
}

namespace tutti::models {

struct DecoderConfig;

class LanguageModel : public nn::Module {
 public:
  // Logits [B * S, vocab_size()] in f32.
  virtual Tensor forward(const TokenBatch& batch, const ForwardOptions& options = {}) const = 0;
  // The cross entropy of the logits and `labels` [B * S], as f32 [B * S]: 0 where a label is ignored. The bits do not
  // depend on options.loss_max_bytes.
  virtual Tensor losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options = {}) const = 0;

  // A forward in parts, for stages and for loops over blocks: embed, then all blocks in spans, then the head. The bits
  // are those of the whole. x is [B * S, D].
  virtual Tensor embed(const TokenBatch& batch) const = 0;
  virtual Tensor blocks(const Tensor& x_TD, const TokenBatch& batch, int64_t first, int64_t end,
                        const ForwardOptions& options = {}) const = 0;
  virtual Tensor head_logits(const Tensor& x_TD) const = 0;
  virtual Tensor head_losses(const Tensor& x_TD, const Tensor& labels, const ForwardOptions& options = {}) const = 0;

  virtual int64_t vocab_size() const = 0;
  // Training FLOPs per token: 6 per parameter that is multiplied with it, plus those of attention.
  virtual double training_flops_per_token(int64_t sequence_length) const = 0;

  // The description that it is built from.
  virtual const DecoderConfig& config() const = 0;

  // How ranks divide the model (parallel/tensor_parallel.h), and UsageError where that many could not with the bits of
  // one; `tokens` of a batch, of which `grain` form a leaf, are cut by sequence parallelism and by mixtures of experts,
  // 0: there are none.
  virtual std::vector<parallel::PlanEntry> tensor_parallel_plan(bool sequence_parallel) const = 0;
  virtual void check_tensor_parallel(int64_t degree, int64_t tokens, int64_t grain) const = 0;
};

struct ModelOptions {
  int64_t max_positions = 0;  // positions of tokens are below this
  double dropout =
      0;  // the probability with which training drops an element of a block's attention or feed-forward output
};

// Builds a model, whose parameters have no memory yet (nn/parameter.h). UsageError, suggesting the nearest name, for an
// unknown family or flavor.
std::unique_ptr<LanguageModel> make_model(std::string_view family, std::string_view flavor,
                                          const ModelOptions& options);

}  // namespace tutti::models
