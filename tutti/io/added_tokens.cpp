#include "tutti/io/added_tokens.h"

#include <algorithm>
#include <utility>

namespace tutti::io {
namespace {

unsigned char byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<const AddedToken*> tokens) : sorted_(std::move(tokens)) {
  std::sort(sorted_.begin(), sorted_.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->content < b->content; });
  for (const AddedToken* token : sorted_) begins_token_[byte_at(token->content, 0)] = true;
}

const AddedToken* AddedTokenFinder::longest_at_start(std::string_view text) const {
  // The tokens that share the first `depth` bytes with the text stand side by side; the shortest of them is the first.
  auto begin = sorted_.begin(), end = sorted_.end();
  const AddedToken* longest = nullptr;
  for (size_t depth = 0; begin != end; ++depth) {
    if ((*begin)->content.size() == depth) longest = *begin++;
    if (depth == text.size()) break;
    const unsigned char next = byte_at(text, depth);
    begin = std::partition_point(begin, end, [&](const AddedToken* t) { return byte_at(t->content, depth) < next; });
    end = std::partition_point(begin, end, [&](const AddedToken* t) { return byte_at(t->content, depth) == next; });
  }
  return longest;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, size_t from) const {
  if (sorted_.empty()) return {text.size(), text.size(), nullptr};
  for (size_t i = from; i < text.size(); ++i) {
    if (!begins_token_[byte_at(text, i)]) continue;
    if (const AddedToken* token = longest_at_start(text.substr(i))) return {i, i + token->content.size(), token};
  }
  return {text.size(), text.size(), nullptr};
}

}  // namespace tutti::io
