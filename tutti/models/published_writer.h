// Writes the keys of config.json that families of decoders share, as transformers reads them.
//
// Angles stand there in both spellings, `rope_parameters` of transformers 5 and `rope_theta` with `rope_scaling` of
// transformers 4, which say the same.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/models/decoder_config.h"
#include "tutti/models/published_decoder.h"

namespace tutti::models {

// The members of a JSON object, by name.
class PublishedKeys {
 public:
  void set(std::string key, bool value);
  void set(std::string key, int64_t value);
  void set(std::string key, double value);  // with a point or an exponent, as Python writes floats
  void set(std::string key, std::string_view value);
  void set(std::string key, const char* value) { set(std::move(key), std::string_view(value)); }
  void set(std::string key, const std::vector<std::string>& values);
  void set(std::string key, const std::vector<int64_t>& values);
  void set(std::string key, const PublishedKeys& object);
  void set_null(std::string key);

  // The text of the object, with a member in each line.
  std::string json() const;

 private:
  std::map<std::string, std::string> values_;  // JSON
};

// The class, sizes, ties and epsilon of a decoder whose layers have the heads of the first.
void write_sizes(const PublishedClass& c, const DecoderConfig& config, PublishedKeys& keys);
// The same with the angles of the first layer and the activation silu.
void write_decoder(const PublishedClass& c, const DecoderConfig& config, PublishedKeys& keys);

// `layer_types`.
void write_layer_types(const DecoderConfig& config, PublishedKeys& keys);
// `use_sliding_window`, `sliding_window`, `max_window_layers`, and `layer_types` where the class asks it.
void write_windows_from_a_layer_on(const DecoderConfig& config, bool has_types, PublishedKeys& keys);

// What the files of a published model say beside the maths.
struct PublishedFacts {
  std::optional<int64_t> positions;  // that the model was made for
  std::optional<int64_t> bos_token, pad_token;
  std::vector<int64_t> eos_tokens;
  std::string quantization;  // the kind of codes that weights are held as (nn/quantization.h); "" of none
};

// The config.json of a decoder whose weights have this dtype. UsageError, listing what differs, when the family's keys
// do not describe the decoder.
std::string published_config_json(const DecoderConfig& config, DType dtype, const PublishedFacts& facts = {});

}  // namespace tutti::models
