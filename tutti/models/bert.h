// BERT: an encoder whose tokens see each other in both directions, and the sentence embeddings of MiniLM on it.
//
//   x = LayerNorm(word + position + type);  each layer: h = LayerNorm(x + Attention(x)), x = LayerNorm(h + FFN(h))
//
// Source: Devlin et al. 2018; Wang et al. 2020; the published configurations and weights of all-MiniLM-L6-v2.
// Dims: B rows of S tokens, D model dim, H heads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "tutti/nn/module.h"

namespace tutti::models {

struct BertConfig {
  int64_t dim = 0, layers = 0, heads = 0, ffn_dim = 0, vocab = 0;
  int64_t max_positions = 512, token_types = 2;
  double norm_eps = 1e-12;
  double init_std = 0.02;
};

// The configuration that a config.json describes. UsageError, naming file and key, for another class, for relative
// positions, for decoders and for other activations than gelu.
BertConfig read_bert_config(const std::string& file);
int64_t parameter_count(const BertConfig& config);

// Parameters have the names of published weights: embeddings.{word,position,token_type}_embeddings,
// embeddings.LayerNorm, encoder.layer.N.attention.{self.{query,key,value}, output.{dense, LayerNorm}},
// encoder.layer.N.{intermediate.dense, output.{dense, LayerNorm}}. There is no pooler.
class Bert final : public nn::Module {
 public:
  // UsageError for sizes that are not positive and heads that do not divide the model dim.
  explicit Bert(const BertConfig& config);
  ~Bert() override;

  // The states of the last layer. Shapes: tokens and token_types i32 [B, S], lengths i32 [B]: tokens of each row, the
  // rest is padding, whose states mean nothing -> [B, S, D]. UsageError for rows longer than max_positions.
  Tensor forward(const Tensor& tokens_BS, const Tensor& token_types_BS, const Tensor& lengths_B) const;

  const BertConfig& config() const { return config_; }

 private:
  struct Embeddings;
  struct Encoder;
  BertConfig config_;
  std::unique_ptr<nn::Child<Embeddings>> embeddings_;
  std::unique_ptr<nn::Child<Encoder>> encoder_;
};

// Loads published weights: a folder with config.json and weights, whose names may begin with "bert." and whose norms
// may be called gamma and beta; poolers and position ids are passed over. Errors as nn::load().
void load_published_bert(Bert& model, const std::filesystem::path& path, bool freeze = false);

// The mean of the states of the tokens of each row, divided by its length: f32 [B, D] of unit rows; the sums are in the
// order of the tokens. Shapes: states [B, S, D], lengths i32 [B], each at least 1.
Tensor sentence_embeddings(const Tensor& states_BSD, const Tensor& lengths_B);

}  // namespace tutti::models
