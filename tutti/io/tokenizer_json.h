// The parts of a tokenizer.json that do not depend on its kind of model.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/io/added_tokens.h"
#include "tutti/io/sequence_frame.h"
#include "tutti/runtime/json_document.h"

namespace tutti {
class JsonWriter;
}

namespace tutti::io {

// Room for every published vocabulary many times over; a larger id in a file is damage, not a vocabulary.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;

int32_t token_id_of(const JsonValue& value);
// The "type" of a step such as the decoder; "none" when it is absent or null.
std::string step_type(const std::optional<JsonValue>& step);
bool flag_of(const JsonValue& object, const char* key, bool when_absent = false);

// The two tokens of an entry of model.merges, "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_parts(const JsonValue& merge);

// model.vocab, and the ids that are taken by it.
struct VocabularyIds {
  std::unordered_map<std::string, int32_t> ids;
  std::function<bool(int32_t)> has_token;
};

// The added tokens, which agree with `vocabulary`. UsageError where they do not.
std::vector<AddedToken> read_added_tokens(const JsonValue& top, const VocabularyIds& vocabulary);
// Sets `normalized` to false where all tokens have it and it makes no difference, because the text is not normalized.
void forget_needless_normalized(std::vector<AddedToken>& tokens);

// The frame that the post-processor makes: none, ByteLevel (which only moves offsets), TemplateProcessing,
// BertProcessing, RobertaProcessing or a Sequence of them. `is_token` tells which ids exist. UsageError for others.
SequenceFrame read_post_processor(const JsonValue& top, const std::function<bool(int32_t)>& is_token);

struct DocumentMarkers {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
};
// Those that `config`, the tokenizer_config.json beside it, names. Without it, EOS is the first of <|endoftext|>,
// <|end_of_text|>, <|eos|>, </s> and BOS the first of <|begin_of_text|>, <|bos|>, <s> that is an added token.
DocumentMarkers read_document_markers(const JsonDocument* config, const std::vector<AddedToken>& tokens);

// Writes the array of added tokens.
void write_added_tokens(const std::vector<AddedToken>& tokens, JsonWriter& json);
// Writes TemplateProcessing; `content_of` gives the text of an id.
void write_template(const SequenceFrame& frame, const std::function<std::string(int32_t)>& content_of,
                    JsonWriter& json);
// A tokenizer_config.json that names the markers, which tokenizer.json cannot express.
std::string markers_json(const DocumentMarkers& markers, const std::vector<AddedToken>& tokens);

}  // namespace tutti::io
