// ModelFamily: the row of a family of published decoders: its flavors, and how its files describe it.
//
// A family is one file in tutti/models/families with one row, and nothing else lists it: the table is made from the
// folder.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/models/decoder_config.h"

namespace tutti::models {

class GgufKeys;
class GgufKeyWriter;
class PublishedConfig;
class PublishedKeys;

// How GGUF files hold a family.
struct GgufArchitecture {
  std::string_view name;        // the value of general.architecture
  bool is_pair_layout = false;  // rows of queries and keys are in pair layout (io/rotary_rows.h)
  bool has_experts = false;
  bool has_divisors = false;  // readers divide frequencies by the tensor rope_freqs.weight
  // Readers want that tensor in every file, for the layers that see all keys.
  bool needs_divisors = false;
  bool experts_beside = false;  // a file with experts has them beside a dense feed-forward
  bool sizes_by_layer = false;  // key/value heads and hidden features may be lists, with a number for each layer
  // Whether the family reads the files; a file that llama.cpp reads as of another family is only written as that.
  bool is_read = true;
  std::string_view expert_length = "expert_feed_forward_length";  // the key of the hidden features of an expert
  // What the keys that architectures share leave open: keys of its own, and what it fixes without any.
  void (*read)(const GgufKeys& keys, DecoderConfig& config) = nullptr;
  void (*write)(const DecoderConfig& config, GgufKeyWriter& keys) = nullptr;
};

// A part of names that Hugging Face's files spell otherwise than this library: {".block_sparse_moe.", ".mlp."}.
struct PartName {
  std::string_view published, own;
};

struct ModelFamily {
  // Named sizes: published ones, and where a family has them small ones for tests.
  std::vector<DecoderConfig> (*flavors)();
  // The values of `model_type` in config.json that the family reads.
  std::vector<std::string_view> model_types;
  // The decoder that a config.json describes. Notes what is not computed here, and with `model` every difference from
  // it; keys that change no logit (dtypes, token ids, caches, the spread of first weights) are not read.
  DecoderConfig (*read)(PublishedConfig& file, const DecoderConfig* model);
  // The keys of the config.json that describes a decoder of the family. Where they cannot, they describe another one,
  // which the caller finds when it reads them (decoder_difference.h).
  void (*write)(const DecoderConfig& config, PublishedKeys& keys);
  // The architectures of the GGUF files of the family.
  std::vector<GgufArchitecture> gguf = {};
  std::vector<PartName> part_names = {};
  // Hugging Face's files hold the experts of a layer as two tensors (stacked_experts.h), not as three of each.
  bool stacks_experts = false;
};

// The name of a tensor of Hugging Face's files in this library, and the other way.
std::string own_name(const ModelFamily& family, std::string_view published);
std::string published_name(const ModelFamily& family, std::string_view own);

// TUTTI_FAMILY(name) = {...}; at the end of tutti/models/families/<name>.cpp, in this namespace.
#define TUTTI_FAMILY(name)                \
  extern const ModelFamily name##_family; \
  const ModelFamily name##_family

struct NamedFamily {
  const char* name;
  const ModelFamily* row;
};
// By name. Made from the folder.
std::span<const NamedFamily> family_table();

// UsageError, suggesting the nearest name, for an unknown family.
const ModelFamily& family_named(std::string_view name);
std::vector<std::string> family_names();
// The configuration of a flavor. UsageError, listing the flavors, for any other name.
DecoderConfig flavor_named(std::string_view family, std::string_view flavor);

// The decoder that a config.json describes, by the family that its `model_type` or `architectures` name, with the
// name of its folder as its flavor. UsageError, naming the file and the key, for a family that is unknown here and for
// what is not computed here; errors as PublishedConfig().
DecoderConfig read_published_config(const std::string& file);
DecoderConfig read_published_config(PublishedConfig& file);

}  // namespace tutti::models
