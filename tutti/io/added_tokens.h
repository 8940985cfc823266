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
};

namespace io {

// Finds added tokens: the leftmost match, and among matches that begin at the same place the longest. Immutable.
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
