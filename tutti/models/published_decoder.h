// Reads the keys of config.json that families of decoders share: class, sizes, rotary angles, activation.
//
// Every function reads its keys, notes what is not computed here, and with `model`, the decoder that the weights are
// loaded into, notes every difference from it.
#pragma once

#include <optional>
#include <string>

#include "tutti/models/decoder_config.h"
#include "tutti/models/published_config.h"

namespace tutti::models {

// The class that reads a published file, in the words of transformers, and its defaults, which missing keys mean.
struct PublishedClass {
  const char *model_type, *architecture;
  int64_t dim, layers, heads, vocab;
  std::optional<int64_t> kv_heads;  // nothing: as many as heads
  std::optional<int64_t> head_dim;  // nothing: dim / heads
  double eps = 1e-6;
  double theta = 10000;
  bool tied = false;
};

// `model_type`, where a file of a model with several parts nests its text model that of the text model; else that which
// `architectures` imply: "qwen3" for "Qwen3ForCausalLM". Nothing when neither is given.
std::optional<std::string> model_type_of(PublishedConfig& file);

// Whether the class reads the file. Missing keys mean the defaults of the class, so nothing else is compared when it is
// another.
bool is_of_class(const PublishedClass& c, PublishedConfig& file);

// Notes weights that are not plain floats.
void refuse_quantized(PublishedConfig& file);
// The quant_method of folders whose linear layers are entries of codes (nn/code_entries.h), which load as they are.
inline constexpr const char* kOwnQuantization = "tutti";

// Dims, heads, vocabulary, ties and epsilon, of layers that are alike and have no angles and no feed-forward yet.
DecoderConfig read_sizes(const PublishedClass& c, PublishedConfig& file, const DecoderConfig* model);
// The same with the angles of all layers.
DecoderConfig read_decoder(const PublishedClass& c, PublishedConfig& file, const DecoderConfig* model);

// The hidden features of the feed-forward of each layer.
void read_feed_forward(const char* key, int64_t by_default, DecoderConfig& config, PublishedConfig& file,
                       const DecoderConfig* model);

// A property that the attention, or the feed-forward, of every layer has.
void read_flag(const char* key, bool by_default, bool AttentionConfig::* member, DecoderConfig& config,
               PublishedConfig& file, const DecoderConfig* model);
void read_flag(const char* key, bool by_default, bool FeedForwardConfig::* member, DecoderConfig& config,
               PublishedConfig& file, const DecoderConfig* model);

// Notes another activation than silu, and dropout in attention.
void read_activation(PublishedConfig& file);

// The windows that a file gives beside `layer_types`, which decides where it is given.
struct PublishedWindows {
  int64_t window = 0;                 // keys of sliding layers, with the query's own; 0: the file gives none
  std::optional<int64_t> first = {};  // without types: layers from this one on slide; nothing: none does
  int64_t period = 0;        // without types: the last layer of each so many sees all keys; 0: there is no period
  bool beats_types = false;  // the class does not ask layer_types which layers slide
  std::string key = "", said = "";  // differences are noted under this key, which says so
};
// The windows of `use_sliding_window`, `sliding_window` and `max_window_layers`, with the defaults of the last two;
// without a default of the last, windows are in all layers.
PublishedWindows windows_from_a_layer_on(int64_t window, std::optional<int64_t> first, PublishedConfig& file);
void read_windows(const PublishedWindows& windows, DecoderConfig& config, PublishedConfig& file,
                  const DecoderConfig* model);

}  // namespace tutti::models
