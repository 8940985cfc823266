// What the families of Gemma share: their description, and the keys of their files.
#pragma once

#include <optional>

#include "tutti/models/gguf_keys.h"
#include "tutti/models/published_decoder.h"
#include "tutti/models/published_rope.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {

// What is alike in Gemma 2 and 3: norms of 1 + weight, norms of outputs, embeddings times sqrt(dim), gelu.
void make_gemma(DecoderConfig& config);

// A cap of scores or logits: a missing key means the default, null none.
double read_cap(const char* key, const std::optional<double>& by_default, PublishedConfig& file);
void write_cap(const char* key, double cap, PublishedKeys& keys);
// The window of the layers that have one; 0: none does.
int64_t largest_window(const DecoderConfig& config);

// The keys of a class in the words of transformers, with its defaults.
struct GemmaClass {
  PublishedClass names;
  int64_t ffn_dim = 9216;
  std::optional<double> score_cap, logits_cap;  // without the first, the class does not compute caps of scores
  // The last layer of each so many sees all keys, unless `layer_types` says otherwise; nothing: the key
  // `sliding_window_pattern` has the number, 6 without it.
  std::optional<int64_t> period;
};
// All but the angles.
DecoderConfig read_gemma(const GemmaClass& c, PublishedConfig& file);
void write_gemma(const GemmaClass& c, const DecoderConfig& config, PublishedKeys& keys);

// What GGUF files of Gemma leave open: windows of `period` layers, and the scale of scores, of which llama.cpp knows
// the models of 27B by their number of layers.
void read_gemma_keys(const GgufKeys& keys, int64_t window, int64_t period, int64_t layers_of_27b,
                     DecoderConfig& config);
// attention.sliding_window where layers have one, and which do where that is not told by the period.
void write_gemma_keys(const DecoderConfig& config, int64_t period, GgufKeyWriter& keys);

}  // namespace tutti::models
