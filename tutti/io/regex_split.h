// Splitting of text into pieces by a regular expression, as byte-level tokenizers do before merging.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::io {

// Each match is a piece, and so is the text between two matches ("Isolated" in tokenizer.json), so the pieces
// concatenate to the text. Patterns are Perl-compatible with Unicode properties (PCRE2). A run of bytes that are not
// UTF-8 is a piece of its own; the pattern sees the text before and after it separately. split() may be called by any
// thread.
class RegexSplitter {
 public:
  // UsageError, naming the pattern and the position in it, when it does not compile.
  explicit RegexSplitter(std::string pattern);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

  const std::string& pattern() const { return pattern_; }
  // Appends base + the end offset of each piece of `text` to `ends`; no piece is empty.
  // UsageError when the pattern needs more steps on this text than PCRE2 allows.
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const;
  // Whether the pattern matches anywhere in `text`, which must be UTF-8.
  bool matches(std::string_view text) const;

 private:
  struct Code;
  void split_valid(std::string_view text, size_t base, std::vector<size_t>& ends) const;

  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace tutti::io
