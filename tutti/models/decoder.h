// Decoder: the language model that a DecoderConfig describes, built from the modules of nn.
//
//   x = Embedding(tokens);  each block: h = x + Attention(Norm(x)), x = h + FeedForward(Norm(h));  Head(Norm(x))
//
// with the further norms, scales and caps of the description.
//
// Dims: B rows of S tokens, T = B * S tokens, D model dim, V vocabulary.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/models/decoder_config.h"
#include "tutti/models/language_model.h"
#include "tutti/nn/linear.h"

namespace tutti::models {

class Decoder final : public LanguageModel {
 public:
  // Errors as validate().
  Decoder(const DecoderConfig& config, const ModelOptions& options);
  Decoder(const DecoderConfig& config, int64_t max_positions)
      : Decoder(config, ModelOptions{.max_positions = max_positions}) {}
  ~Decoder() override;

  Tensor forward(const TokenBatch& batch, const ForwardOptions& options = {}) const override;
  Tensor losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options = {}) const override;
  int64_t vocab_size() const override { return config_.vocab; }
  double training_flops_per_token(int64_t sequence_length) const override {
    return models::training_flops_per_token(config_, sequence_length);
  }

  Tensor embed(const TokenBatch& batch) const override;
  Tensor blocks(const Tensor& x_TD, const TokenBatch& batch, int64_t first, int64_t end,
                const ForwardOptions& options = {}) const override;
  Tensor head_logits(const Tensor& x_TD) const override;
  Tensor head_losses(const Tensor& x_TD, const Tensor& labels, const ForwardOptions& options = {}) const override;

  // As decoder_plan.h says.
  std::vector<parallel::PlanEntry> tensor_parallel_plan(bool sequence_parallel) const override;
  void check_tensor_parallel(int64_t degree, int64_t tokens, int64_t grain) const override;

  const DecoderConfig& config() const override { return config_; }

 private:
  struct Stack;
  const nn::LinearOperand& head() const { return lm_head_ ? (*lm_head_)->operand() : *tied_head_; }
  Tensor logits_of(const Tensor& normed_TD) const;
  Tensor losses_of(const Tensor& normed_TD, const Tensor& labels, const ForwardOptions& options) const;

  DecoderConfig config_;
  std::unique_ptr<nn::Child<Stack>> stack_;         // "model"
  std::unique_ptr<nn::Child<nn::Linear>> lm_head_;  // null: the head is the embedding
  std::unique_ptr<const nn::LinearOperand> tied_head_;
};

}  // namespace tutti::models
