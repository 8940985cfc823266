// The classes of characters that the normalizer of BERT's tokenizers goes by, as in HuggingFace tokenizers.
#pragma once

#include <cstdint>

namespace tutti::io {

struct CharacterRange {
  uint32_t first;
  uint32_t last;
};

// Every `step`-th character from `first` to `last` has its lower case `change` further.
struct LowercaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t change;
};

// All tables are sorted, and their ranges apart. U+0130 is the one character whose lower case is two.
extern const CharacterRange kBertRemoved[];  // what clean_text removes: control characters, U+0000, U+FFFD
extern const int64_t kBertRemovedCount;
extern const CharacterRange kBertMarks[];  // what strip_accents removes after decomposition
extern const int64_t kBertMarksCount;
extern const CharacterRange kBertPunctuation[];
extern const int64_t kBertPunctuationCount;
extern const LowercaseRange kLowercase[];
extern const int64_t kLowercaseCount;

}  // namespace tutti::io
