#include "tutti/io/nfc.h"

#include <algorithm>
#include <bitset>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tutti/io/nfc_data.h"
#include "tutti/io/utf8.h"

namespace tutti::io {
namespace {

// Unicode 14, section 3.12, "Conjoining jamo behavior".
constexpr uint32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTrailBase = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28, kSyllableCount = 11172;
// No character from here on decomposes, combines or has a class.
constexpr uint32_t kTableEnd = 0x30000;
// Nothing below can change: the first combining mark is U+0300.
constexpr unsigned char kFirstLeadByteOfMarks = 0xCC;

uint64_t pair_of(uint32_t first, uint32_t second) { return (uint64_t{first} << 32) | second; }

struct Tables {
  std::unordered_map<uint32_t, CanonicalDecomposition> decompositions;
  std::unordered_map<uint64_t, uint32_t> compositions;
  std::unordered_map<uint32_t, uint8_t> classes;
  std::bitset<kTableEnd> may_change;  // text without any of these is in normal form C
};

std::unique_ptr<const Tables> make_tables() {
  auto tables = std::make_unique<Tables>();
  const uint32_t* exclusions_end = kCompositionExclusions + kCompositionExclusionCount;
  for (int64_t i = 0; i < kCanonicalDecompositionCount; ++i) {
    const CanonicalDecomposition& row = kCanonicalDecompositions[i];
    tables->decompositions.emplace(row.composed, row);
    if (row.second == 0 || std::binary_search(kCompositionExclusions, exclusions_end, row.composed)) {
      tables->may_change.set(row.composed);
    } else {
      tables->compositions.emplace(pair_of(row.first, row.second), row.composed);
      tables->may_change.set(row.second);
    }
  }
  for (int64_t i = 0; i < kCombiningClassCount; ++i) {
    for (uint32_t c = kCombiningClasses[i].first; c <= kCombiningClasses[i].last; ++c) {
      tables->classes.emplace(c, kCombiningClasses[i].combining_class);
      if (c < kTableEnd) tables->may_change.set(c);
    }
  }
  for (uint32_t i = 0; i < kVowelCount; ++i) tables->may_change.set(kVowelBase + i);
  for (uint32_t i = 1; i < kTrailCount; ++i) tables->may_change.set(kTrailBase + i);
  return tables;
}

const Tables& tables() {
  static const std::unique_ptr<const Tables> instance = make_tables();
  return *instance;
}

uint8_t class_of(uint32_t c) {
  const auto found = tables().classes.find(c);
  return found == tables().classes.end() ? 0 : found->second;
}

void append_decomposed(uint32_t c, std::vector<uint32_t>& out) {
  if (c >= kSyllableBase && c < kSyllableBase + kSyllableCount) {
    const uint32_t index = c - kSyllableBase;
    out.push_back(kLeadBase + index / (kVowelCount * kTrailCount));
    out.push_back(kVowelBase + index % (kVowelCount * kTrailCount) / kTrailCount);
    if (index % kTrailCount != 0) out.push_back(kTrailBase + index % kTrailCount);
    return;
  }
  const auto found = tables().decompositions.find(c);
  if (found == tables().decompositions.end()) return out.push_back(c);
  append_decomposed(found->second.first, out);
  if (found->second.second != 0) append_decomposed(found->second.second, out);
}

// The composition of two characters, or 0.
uint32_t composed(uint32_t first, uint32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kLeadCount && second >= kVowelBase &&
      second < kVowelBase + kVowelCount) {
    return kSyllableBase + ((first - kLeadBase) * kVowelCount + (second - kVowelBase)) * kTrailCount;
  }
  if (first >= kSyllableBase && first < kSyllableBase + kSyllableCount && (first - kSyllableBase) % kTrailCount == 0 &&
      second > kTrailBase && second < kTrailBase + kTrailCount) {
    return first + (second - kTrailBase);
  }
  const auto found = tables().compositions.find(pair_of(first, second));
  return found == tables().compositions.end() ? 0 : found->second;
}

// Runs of combining characters in the order of their classes, equal classes as they stand.
void reorder(std::vector<uint32_t>& text) {
  for (size_t begin = 0; begin < text.size();) {
    if (class_of(text[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && class_of(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<int64_t>(begin), text.begin() + static_cast<int64_t>(end),
                     [](uint32_t a, uint32_t b) { return class_of(a) < class_of(b); });
    begin = end;
  }
}

// A character joins the last starter unless one of its own or a higher class, or another starter, stands between.
void compose(std::vector<uint32_t>& text) {
  size_t kept = 0;
  size_t starter = text.size();  // none yet
  int last_class = -1;           // of the characters kept since the starter; -1 for none
  for (const uint32_t c : text) {
    const int own_class = class_of(c);
    if (starter != text.size() && last_class < own_class) {
      const uint32_t joined = composed(text[starter], c);
      if (joined != 0) {
        text[starter] = joined;
        continue;
      }
    }
    if (own_class == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = own_class;
    }
    text[kept++] = c;
  }
  text.resize(kept);
}

bool may_change(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < kFirstLeadByteOfMarks) {
      ++i;
      continue;
    }
    const size_t nbytes = utf8_sequence_nbytes(text.substr(i));
    if (nbytes > 0) {
      const uint32_t c = utf8_decode(text.substr(i, nbytes));
      if (c < kTableEnd && tables().may_change[c]) return true;
    }
    i += std::max<size_t>(nbytes, 1);
  }
  return false;
}

void append_normalized(std::string_view valid, std::string& out) {
  std::vector<uint32_t> text;
  for (size_t i = 0; i < valid.size();) {
    const size_t nbytes = utf8_sequence_nbytes(valid.substr(i));
    append_decomposed(utf8_decode(valid.substr(i, nbytes)), text);
    i += nbytes;
  }
  reorder(text);
  compose(text);
  for (const uint32_t c : text) utf8_append(c, out);
}

}  // namespace

void to_nfd(std::vector<uint32_t>& text) {
  std::vector<uint32_t> decomposed;
  decomposed.reserve(text.size());
  for (const uint32_t c : text) append_decomposed(c, decomposed);
  reorder(decomposed);
  text.swap(decomposed);
}

std::string_view to_nfc(std::string_view text, std::string& storage) {
  if (!may_change(text)) return text;
  storage.clear();
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix_nbytes(text);
    append_normalized(text.substr(0, valid), storage);
    if (valid < text.size()) storage.push_back(text[valid]);
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return storage;
}

}  // namespace tutti::io
