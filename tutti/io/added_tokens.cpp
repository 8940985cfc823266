#include "tutti/io/added_tokens.h"

#include <algorithm>

namespace tutti::io {

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) : longest_first_(tokens) {
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (const AddedToken& token : tokens) begins_token_[static_cast<unsigned char>(token.content[0])] = true;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, size_t from) const {
  if (longest_first_.empty()) return {text.size(), text.size(), 0};
  for (size_t i = from; i < text.size(); ++i) {
    if (!begins_token_[static_cast<unsigned char>(text[i])]) continue;
    for (const AddedToken& token : longest_first_) {
      if (text.substr(i).starts_with(token.content)) return {i, i + token.content.size(), token.id};
    }
  }
  return {text.size(), text.size(), 0};
}

}  // namespace tutti::io
