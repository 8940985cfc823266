#include "tutti/io/bert_normalizer.h"

#include <algorithm>
#include <cstdint>

#include "tutti/io/bert_data.h"
#include "tutti/io/nfc.h"
#include "tutti/io/utf8.h"
#include "tutti/io/white_space.h"

namespace tutti::io {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

// As published: a slip there leaves U+2B820 to U+2B91F out, and ids have to agree.
constexpr CharacterRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                          {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

template <class Range>
const Range* range_of(const Range* begin, const Range* end, uint32_t c) {
  const Range* found = std::lower_bound(begin, end, c, [](const Range& range, uint32_t x) { return range.last < x; });
  return found != end && found->first <= c ? found : nullptr;
}

bool is_removed(uint32_t c) { return range_of(kBertRemoved, kBertRemoved + kBertRemovedCount, c) != nullptr; }
bool is_mark(uint32_t c) { return range_of(kBertMarks, kBertMarks + kBertMarksCount, c) != nullptr; }
bool is_ideograph(uint32_t c) { return range_of(std::begin(kIdeographs), std::end(kIdeographs), c) != nullptr; }
bool is_punctuation(uint32_t c) {
  return range_of(kBertPunctuation, kBertPunctuation + kBertPunctuationCount, c) != nullptr;
}

void append_lowercase(uint32_t c, std::string& out) {
  const LowercaseRange* range = range_of(kLowercase, kLowercase + kLowercaseCount, c);
  if (range != nullptr && (c - range->first) % range->step == 0) c += static_cast<uint32_t>(range->change);
  utf8_append(c == 0x130 ? 'i' : c, out);
  if (c == 0x130) utf8_append(0x307, out);
}

// Characters below U+0080 take part in nothing that looks at neighbours, so runs of others are normalized alone.
void append_run(std::vector<uint32_t>& run, const BertNormalization& options, std::string& out) {
  if (options.strip_accents.value_or(options.lowercase)) {
    to_nfd(run);
    std::erase_if(run, is_mark);
  }
  for (const uint32_t c : run) {
    if (options.lowercase) append_lowercase(c, out);
    else utf8_append(c, out);
  }
  run.clear();
}

void append_ascii(char c, const BertNormalization& options, std::string& out) {
  if (options.clean_text && (c < ' ' || c == 0x7F)) {
    if (c != '\t' && c != '\n' && c != '\r') return;
    c = ' ';
  }
  out += options.lowercase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string bert_normalized(std::string_view text, const BertNormalization& options) {
  std::string out;
  out.reserve(text.size());
  std::vector<uint32_t> run;
  for (size_t i = 0; i < text.size();) {
    const size_t nbytes = utf8_sequence_nbytes(text.substr(i));
    if (nbytes == 1) {
      append_run(run, options, out);
      append_ascii(text[i++], options, out);
      continue;
    }
    const uint32_t c = nbytes == 0 ? kReplacement : utf8_decode(text.substr(i, nbytes));
    i += std::max<size_t>(nbytes, 1);
    if (options.clean_text && is_removed(c)) continue;
    if (options.clean_text && is_white_space(c)) {
      run.push_back(' ');
    } else if (options.handle_chinese_chars && is_ideograph(c)) {
      run.insert(run.end(), {' ', c, ' '});
    } else {
      run.push_back(c);
    }
  }
  append_run(run, options, out);
  return out;
}

std::vector<std::string_view> bert_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;  // of the word that is being read
  for (size_t i = 0; i < text.size();) {
    const size_t nbytes = utf8_sequence_nbytes(text.substr(i));
    const uint32_t c = utf8_decode(text.substr(i, nbytes));
    const bool isolates = is_punctuation(c), ends_word = isolates || is_white_space(c);
    if (ends_word && i > begin) words.push_back(text.substr(begin, i - begin));
    if (isolates) words.push_back(text.substr(i, nbytes));
    i += nbytes;
    if (ends_word) begin = i;
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
  return words;
}

}  // namespace tutti::io
