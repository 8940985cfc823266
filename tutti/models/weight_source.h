// The weights of a published model as they are written to another file: all of them, checked, and one at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/block_format.h"
#include "tutti/models/published_model.h"
#include "tutti/models/published_writer.h"
#include "tutti/nn/published_experts.h"

namespace tutti::models {

struct SourceWeight {
  std::string name;  // of this library; the experts of a layer are one tensor for each of their weights
  Extents sizes;
  DType dtype = DType::f32;  // of the values: f32 for blocks
  std::optional<BlockFormat> blocks = std::nullopt;

  int64_t nbytes() const;
  bool holds_experts() const { return sizes.ndim() == 3; }
  // Norms, biases and routers, which GGUF files always hold in f32: llama.cpp computes with them in f32.
  bool is_f32_in_gguf() const;
};

// Used by one thread at a time.
class WeightSource {
 public:
  // UsageError, naming file and tensors, when some of the decoder's are missing or have other sizes, and for tensors
  // that the decoder does not have.
  explicit WeightSource(const PublishedModel& model);
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  const PublishedModel& model() const { return model_; }
  // The model's description, in which embeddings are tied as well when the file holds one tensor under both names.
  const DecoderConfig& config() const { return config_; }
  // In the order of decoder_parameters(), then of decoder_buffers().
  const std::vector<SourceWeight>& weights() const { return weights_; }
  // The weight of that name. UsageError when there is none.
  const SourceWeight& weight(std::string_view name) const;
  int64_t nbytes() const;
  // The bytes of a head that repeats the embedding, which is read and written once.
  int64_t repeated_nbytes() const;
  // The dtype that most elements have, of f32, bf16 and f16.
  DType main_dtype() const;

  // The values of a weight, of all experts or of one: a view of the file's pages where it holds numbers, new memory
  // where it holds blocks.
  Tensor values(const SourceWeight& weight) const { return tensors_.tensor(weight.name); }
  Tensor values_of_expert(const SourceWeight& weight, int64_t expert) const;

  // What the files say beside the maths. UsageError for keys that are not as expected.
  PublishedFacts facts() const;
  // The folder of a model of Hugging Face's; empty for a GGUF file.
  std::filesystem::path folder() const;

 private:
  void check_head();
  bool is_ignored(const std::string& name) const;

  const PublishedModel model_;
  const nn::GroupedTensors tensors_;
  DecoderConfig config_;
  std::vector<SourceWeight> weights_;
};

// What is said of a repeated head that is stored once.
std::string note_of_repeated(const WeightSource& source);

// The values as `dtype`. UsageError, naming the weight, when a number is too large for f16.
Tensor converted_weight(const std::string& name, const Tensor& values, DType dtype);

}  // namespace tutti::models
