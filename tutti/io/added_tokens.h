// Added tokens: markers such as <|endoftext|>, which are matched literally in the text before it is split.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  // Whether the white space before or behind a match is part of it.
  bool lstrip = false;
  bool rstrip = false;
  // Whether a match counts only where no letter, mark, digit or underscore touches it.
  bool single_word = false;
  // Whether it is looked for in the normalized text, behind those that are looked for in the text as given.
  bool normalized = false;
};

namespace io {

// Finds added tokens: the leftmost match, and among matches that begin at the same place the longest. Immutable.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // Refers to `tokens`, which have different contents, none of them empty.
  explicit AddedTokenFinder(std::vector<const AddedToken*> tokens);

  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;  // nullptr when there is none
  };
  // The first match at or after `from`.
  Match find(std::string_view text, size_t from) const;
  bool is_empty() const { return sorted_.empty(); }

 private:
  const AddedToken* longest_at_start(std::string_view text) const;

  std::vector<const AddedToken*> sorted_;  // by content
  std::array<bool, 256> begins_token_{};
};

}  // namespace io
}  // namespace tutti
