// The part of the Unicode character database that str.upper() and str.lower() need.
#pragma once

#include <cstdint>
#include <iterator>

namespace tutti::jinja {

// Every `step`-th character from `first` to `last` has its other case `change` further.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t change;
};

// A character whose upper case is more than one; those that are not there are 0.
struct UpperExpansion {
  uint32_t from;
  uint32_t to[3];
};

// All tables are sorted, and their ranges apart.
extern const CaseRange kUppercase[];
extern const int64_t kUppercaseCount;
extern const CaseRange kLowercase[];
extern const int64_t kLowercaseCount;
extern const UpperExpansion kUpperExpansions[];
extern const int64_t kUpperExpansionCount;

}  // namespace tutti::jinja
