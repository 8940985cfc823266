// Embeddings of sentences by a published encoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/tokenizer.h"
#include "tutti/models/bert.h"
#include "tutti/train/quantize_settings.h"

namespace tutti::train {

// all-MiniLM-L6-v2 and models of its form: the mean of the last states of a BERT over the tokens of a text, of unit
// length. Immutable; any thread may call it.
class SentenceModel {
 public:
  // A folder with config.json, tokenizer.json and weights. The longest text has as many tokens as
  // sentence_bert_config.json says under max_seq_length, else as the model has positions; the settings of truncation
  // and padding in tokenizer.json are passed over. UsageError where modules.json or
  // the settings of its pooling say otherwise; errors of read_bert_config(), open_tokenizer() and nn::load().
  // With `quantize` the linear layers become codes (quantize_model.h); each line of the files of calibration is a text.
  explicit SentenceModel(const std::filesystem::path& folder, const QuantizeSettings& quantize = {});

  // The embedding of a text, of which the tokens beyond the longest are left out; f32, of unit length.
  std::vector<float> embed(std::string_view text) const;
  // The same of ids with their frame, [CLS] and [SEP]. UsageError for none, too many, and ids that the model lacks.
  std::vector<float> embed(std::span<const int32_t> ids) const;
  // The ids of a text with their frame.
  std::vector<int32_t> encode(std::string_view text) const;

  const std::string& name() const { return name_; }  // of its folder
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  int64_t longest() const { return longest_; }  // tokens of a text

 private:
  int64_t read_lines(const QuantizeSettings& settings) const;

  std::string name_;
  std::unique_ptr<models::Bert> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  int64_t longest_;
};

// Whether the path is that of an encoder that SentenceModel may open: a folder whose config.json says so.
bool is_sentence_model(const std::filesystem::path& path);

}  // namespace tutti::train
