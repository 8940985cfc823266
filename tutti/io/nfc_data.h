// The part of the Unicode character database that normal form C needs, apart from Hangul, which is arithmetic.
#pragma once

#include <cstdint>

namespace tutti::io {

struct CanonicalDecomposition {
  uint32_t composed;
  uint32_t first;
  uint32_t second;  // 0 when the decomposition is one character
};

struct CombiningClassRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};

extern const char* const kNfcUnicodeVersion;
extern const CanonicalDecomposition kCanonicalDecompositions[];  // one level; apply again to the parts
extern const int64_t kCanonicalDecompositionCount;
extern const uint32_t
    kCompositionExclusions[];  // characters with a two-character decomposition that is never recomposed
extern const int64_t kCompositionExclusionCount;
extern const CombiningClassRange kCombiningClasses[];  // all other characters have class 0
extern const int64_t kCombiningClassCount;

}  // namespace tutti::io
