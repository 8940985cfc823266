// Tokens that are found in the text as they are written, before any splitting: markers such as <|endoftext|>.
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
};

namespace io {

// Finds added tokens, leftmost first and the longest of those that begin at one place. Immutable.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };
  // The first match at or after `from`; begin == text.size() when there is none.
  Match find(std::string_view text, size_t from) const;

 private:
  std::vector<AddedToken> longest_first_;
  std::array<bool, 256> begins_token_{};
};

}  // namespace io
}  // namespace tutti
