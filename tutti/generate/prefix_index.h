// PrefixIndex: which beginnings of sequences have been seen, page by page.
//
// A prefix is a number of whole pages of tokens; it has a number that is never given again. Two prefixes have the same
// number only if all their tokens are equal: an entry is found by the number of the prefix without its last page and
// by all tokens of that page. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace tutti::generate {

class PrefixIndex {
 public:
  static constexpr uint64_t kEmpty = 0;  // the prefix without tokens

  // The prefix `before` followed by `page`, if it has been added and not been removed.
  std::optional<uint64_t> find(uint64_t before, std::span<const int32_t> page) const;
  // The same, adding it if it is not there.
  uint64_t add(uint64_t before, std::span<const int32_t> page);
  // Forgets a prefix. Longer ones that begin with it can then not be found any more: what is added again has another
  // number.
  void remove(uint64_t prefix);

  int64_t size() const { return std::ssize(places_); }

 private:
  struct Key {
    uint64_t before;
    std::vector<int32_t> page;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, uint64_t> numbers_;
  std::map<uint64_t, std::map<Key, uint64_t>::iterator> places_;
  uint64_t last_ = kEmpty;
};

}  // namespace tutti::generate
