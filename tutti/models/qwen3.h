// Qwen3, dense or with a mixture of experts: a decoder with grouped-query attention, per-head norms on queries and
// keys, rotary positions and a gated feed-forward layer, or experts that are such layers (nn/moe.h). Source: the
// published configurations and weights of Qwen3.
//
//   h = x + Attention(RmsNorm(x));  y = h + FeedForward(RmsNorm(h));  logits = Head(RmsNorm(y_last))
//
// Dims: B rows of S tokens, T = B * S tokens, D model dim, H heads, K key/value heads, E head dim, F hidden dim, V
// vocabulary.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/models/language_model.h"
#include "tutti/models/qwen3_config.h"
#include "tutti/nn/linear.h"

namespace tutti::models {

class Qwen3 final : public LanguageModel {
 public:
  // UsageError when the head counts do not divide, and for numbers of experts that do not fit.
  Qwen3(const Qwen3Config& config, const ModelOptions& options);
  Qwen3(const Qwen3Config& config, int64_t max_positions)
      : Qwen3(config, ModelOptions{.max_positions = max_positions}) {}
  ~Qwen3() override;

  Tensor forward(const TokenBatch& batch, const ForwardOptions& options = {}) const override;
  Tensor losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options = {}) const override;
  int64_t vocab_size() const override { return config_.vocab; }
  double training_flops_per_token(int64_t sequence_length) const override {
    return models::training_flops_per_token(config_, sequence_length);
  }

  // As qwen3_published.h says.
  std::string compare_published(PublishedConfig& published) const override;

  // As qwen3_plan.h says.
  std::vector<parallel::PlanEntry> tensor_parallel_plan(bool sequence_parallel) const override;
  void check_tensor_parallel(int64_t degree, int64_t tokens, int64_t grain) const override;

  const Qwen3Config& config() const { return config_; }

 private:
  struct Decoder;
  Qwen3Config config_;
  std::unique_ptr<nn::Child<Decoder>> decoder_;     // "model"
  std::unique_ptr<nn::Child<nn::Linear>> lm_head_;  // null: the head is the embedding
  nn::Parameter head_VD_;
};

extern const ModelFamily kQwen3Family;

}  // namespace tutti::models
