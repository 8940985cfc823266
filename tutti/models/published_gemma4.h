// Gemma 4, the text model: its description, and the keys of its files.
#pragma once

#include "tutti/models/gguf_keys.h"
#include "tutti/models/published_gemma.h"

namespace tutti::models {

// What is alike in all models: norms of weights as they are, of queries, keys, values and outputs, scores as they are,
// embeddings times sqrt(dim), gelu, scalars of layers. In layers that see all keys a quarter of each head turns.
void make_gemma4(DecoderConfig& config);
RopeConfig gemma4_full_rope();
RopeConfig gemma4_sliding_rope();

// The last `count` layers attend to keys and values of the last layer before them that has their window. Returns the
// first of them for which there is none; nothing: all have one.
std::optional<size_t> share_keys(int64_t count, DecoderConfig& config);
int64_t layers_that_share_keys(const DecoderConfig& config);

DecoderConfig read_gemma4(PublishedConfig& file, const DecoderConfig* model);
void write_gemma4(const DecoderConfig& config, PublishedKeys& keys);

void read_gemma4_keys(const GgufKeys& keys, DecoderConfig& config);
void write_gemma4_keys(const DecoderConfig& config, GgufKeyWriter& keys);

}  // namespace tutti::models
