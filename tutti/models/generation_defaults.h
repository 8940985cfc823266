// What a published model says about the texts that are written with it: which ids end one, and how it is usually
// sampled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/model_file.h"

namespace tutti {
class Tokenizer;
}

namespace tutti::models {

// The values of generation_config.json, under its names. A member without a value is one that the file does not give.
struct GenerationDefaults {
  std::optional<bool> do_sample;       // false: always the most likely token
  std::optional<double> temperature;   // above 0
  std::optional<int64_t> top_k;        // 0: all tokens
  std::optional<double> top_p, min_p;  // 0 to 1
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  std::vector<std::string> stop_strings;
  std::vector<int32_t> suppress_tokens;  // ids that are never drawn
  std::vector<int32_t> eos_token_ids;    // eos_token_id, one id or several
};

// Reads the text of a generation_config.json; `name` stands for the file in messages. Other keys are not read.
// UsageError, naming the file and the key, for values of other kinds or outside of their range.
GenerationDefaults parse_generation_defaults(std::string_view json, const std::string& name);

// The defaults of an open model: the generation_config.json beside its weights, or of a GGUF file the keys
// general.sampling.* and tokenizer.ggml.suppress_tokens. `eos_token_ids` are all ids that end a text, each once:
//   folders     those of generation_config.json, else of config.json, else the EOS of the tokenizer.
//   GGUF files  the ids of end of text, turn and message, and control and user-defined tokens with a name by which
//               published models end texts, such as <|im_end|> (GGUF names one EOS only).
// UsageError as above, and EnvironmentError for files that cannot be read.
GenerationDefaults generation_defaults(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace tutti::models
