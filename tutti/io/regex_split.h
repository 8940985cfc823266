// Cutting text into pieces by a regular expression, as byte-level tokenizers do before they merge.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::io {

// Each match is a piece, and so is each stretch between two matches ("Isolated" in tokenizer.json), so the pieces in
// order are the text. Patterns are Perl's with Unicode properties (PCRE2). Bytes that are not UTF-8 end the text for the
// pattern: each run of them is a piece of its own, and matching starts anew behind it.
// Any thread may call split().
class RegexSplitter {
 public:
  // UsageError naming the pattern and the place in it when it does not compile.
  explicit RegexSplitter(std::string pattern);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

  const std::string& pattern() const { return pattern_; }
  // Appends base + the end of each piece of `text` to `ends`; no piece is empty.
  // UsageError when the pattern needs more steps on this text than PCRE2 allows.
  void split(std::string_view text, size_t base, std::vector<size_t>& ends) const;

 private:
  struct Code;
  void split_valid(std::string_view text, size_t base, std::vector<size_t>& ends) const;

  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace tutti::io
