#include "tutti/io/added_token_splitter.h"

#include <algorithm>
#include <utility>

#include "tutti/io/utf8.h"
#include "tutti/io/white_space.h"

namespace tutti::io {
namespace {

// Unicode Technical Standard 18, annex C, "word": alphabetic characters, marks, decimal digits, connectors and joiners.
// The ranges are the alphabetic characters that are neither letters nor marks nor letter numbers.
constexpr const char* kWord =
    "^[\\p{L}\\p{M}\\p{Nl}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
    "\\x{1F170}-\\x{1F189}]";

std::vector<const AddedToken*> pointers_to(const std::vector<AddedToken>& tokens) {
  std::vector<const AddedToken*> pointers;
  for (const AddedToken& token : tokens) pointers.push_back(&token);
  return pointers;
}

// Where the white space at the end of `text` begins.
size_t trailing_space_begin(std::string_view text) {
  while (!text.empty()) {
    const std::string_view last = utf8_last_sequence(text);
    if (last.empty() || !is_white_space(utf8_decode(last))) break;
    text.remove_suffix(last.size());
  }
  return text.size();
}

size_t leading_space_nbytes(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    const size_t nbytes = utf8_sequence_nbytes(text.substr(position));
    if (nbytes == 0 || !is_white_space(utf8_decode(text.substr(position, nbytes)))) break;
    position += nbytes;
  }
  return position;
}

}  // namespace

AddedTokenSplitter::AddedTokenSplitter(std::vector<AddedToken> tokens, NormalizeText normalize)
    : normalize_(std::move(normalize)) {
  for (AddedToken& token : tokens) {
    if (token.single_word && !word_) word_.emplace(kWord);
    std::string storage;
    if (token.normalized && normalize_) token.content = std::string(normalize_(token.content, storage));
    std::vector<AddedToken>& group = token.normalized ? normalized_ : as_given_;
    const auto has_its_content = [&](const AddedToken& other) { return other.content == token.content; };
    // A token of which normalization leaves nothing, or another token, cannot be found.
    if (token.content.empty() || (token.normalized && std::any_of(group.begin(), group.end(), has_its_content)))
      continue;
    group.push_back(std::move(token));
  }
  as_given_finder_ = AddedTokenFinder(pointers_to(as_given_));
  normalized_finder_ = AddedTokenFinder(pointers_to(normalized_));
}

bool AddedTokenSplitter::touches_word(std::string_view text, size_t begin, size_t end) const {
  const std::string_view before = utf8_last_sequence(text.substr(0, begin));
  const std::string_view behind = text.substr(end, utf8_sequence_nbytes(text.substr(end)));
  return (!before.empty() && word_->matches(before)) || (!behind.empty() && word_->matches(behind));
}

void AddedTokenSplitter::split_by(const AddedTokenFinder& finder, std::string_view text, bool parse_special,
                                  const std::function<void(std::string_view)>& on_text,
                                  const std::function<void(int32_t)>& on_token) const {
  size_t done = 0;  // everything before has been told
  // A match that does not count is passed over as a whole, and white space that a match takes may hold the next match:
  // so do HuggingFace tokenizers.
  for (size_t from = 0; from < text.size();) {
    const AddedTokenFinder::Match match = finder.find(text, from);
    if (match.token == nullptr) break;
    from = match.end;
    const AddedToken& token = *match.token;
    if (token.special && !parse_special) continue;
    if (token.single_word && touches_word(text, match.begin, match.end)) continue;
    const size_t begin = token.lstrip ? std::max(trailing_space_begin(text.substr(0, match.begin)), done) : match.begin;
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(token.id);
    done = match.end + (token.rstrip ? leading_space_nbytes(text.substr(match.end)) : 0);
  }
  if (done < text.size()) on_text(text.substr(done));
}

void AddedTokenSplitter::split(std::string_view text, bool parse_special,
                               const std::function<void(std::string_view)>& on_text,
                               const std::function<void(int32_t)>& on_token) const {
  std::string storage;
  const auto normalize_and_split = [&](std::string_view stretch) {
    if (normalize_) stretch = normalize_(stretch, storage);
    split_by(normalized_finder_, stretch, parse_special, on_text, on_token);
  };
  split_by(as_given_finder_, text, parse_special, normalize_and_split, on_token);
}

}  // namespace tutti::io
