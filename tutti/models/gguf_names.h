// The tensors of GGUF files of decoders, under the names of this library.
//
// A GGUF file names a tensor "blk.3.attn_q.weight" where this library and Hugging Face's files have
// "model.layers.3.self_attn.q_proj.weight". Files of some architectures hold the rows of queries and keys in pair
// layout (io/rotary_rows.h), this library in half layout.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tutti/io/model_file.h"
#include "tutti/models/decoder_config.h"

namespace tutti::models {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; nothing for a name that no decoder has. The norms
// of layers with norms of outputs have names of their own.
// Experts beside a dense feed-forward do, too.
std::optional<std::string> name_of_gguf(std::string_view gguf, bool output_norms = false, bool experts_beside = false);
// The other way.
std::optional<std::string> gguf_name_of(std::string_view name, bool output_norms = false);
// Whether the tensor of this library is the weight of a norm.
bool is_norm(std::string_view name);

// The file under the names and in the layout of this library; the file must be that of a decoder like `config`. Names
// that are not known stay as they are, so that loading reports them. Routers have a bias of zeros. GGUF files hold 1 +
// weight where norms multiply by that, and the weight is given.
ModelFile decoder_tensors_of_gguf(const ModelFile& gguf, const DecoderConfig& config, bool is_pair_layout);

}  // namespace tutti::models
