#include "tutti/io/published_tokenizer.h"

#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/sentence_piece_tokenizer.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/io/word_piece_tokenizer.h"
#include "tutti/runtime/json_document.h"

namespace tutti {
namespace {

// Old files name no type; WordPiece is then what says how words are continued and has no merges.
bool is_word_piece(std::string_view json, std::string_view name) {
  const JsonDocument document(json, {.name = std::string(name)});
  const JsonValue model = document.top().at("model");
  const auto type = model.find_set("type");
  if (type && type->text() != "BPE" && type->text() != "WordPiece")
    type->fail("is {}; supported are BPE and WordPiece", type->shown());
  return type ? type->text() == "WordPiece" : model.find("max_input_chars_per_word").has_value();
}

bool has_byte_fallback(std::string_view json, std::string_view name) {
  const JsonDocument document(json, {.name = std::string(name)});
  return io::flag_of(document.top().at("model"), "byte_fallback");
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view config, std::string_view name) {
  if (is_word_piece(json, name))
    return std::make_unique<WordPieceTokenizer>(io::parse_word_piece_json(json, config, name));
  if (has_byte_fallback(json, name))
    return std::make_unique<SentencePieceTokenizer>(io::parse_sentence_piece_json(json, config, name));
  return std::make_unique<BpeTokenizer>(io::parse_tokenizer_json(json, config, name));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  const MappedFile file(path);
  const std::string beside = (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
  std::error_code error;
  if (!std::filesystem::exists(beside, error)) return parse_tokenizer(file.text(), "", path);
  const MappedFile config(beside);
  TUTTI_CHECK(config.nbytes() > 0, "{}:1:1: byte 1: not JSON: the file is empty", beside);
  return parse_tokenizer(file.text(), config.text(), path);
}

}  // namespace tutti
