// Upper and lower case of text as Python has them.
#include <algorithm>
#include <functional>

#include "tutti/io/chat_template/letter_case_data.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

uint32_t changed(uint32_t c, const CaseRange* ranges, int64_t count) {
  const CaseRange* range = std::lower_bound(ranges, ranges + count, c,
                                            [](const CaseRange& at, uint32_t wanted) { return at.last < wanted; });
  if (range == ranges + count || c < range->first || (c - range->first) % range->step != 0) return c;
  return c + static_cast<uint32_t>(range->change);
}

std::string utf8_of(uint32_t c) {
  std::string bytes;
  io::utf8_append(c, bytes);
  return bytes;
}

std::string upper_of(uint32_t c) {
  const UpperExpansion* found =
      std::lower_bound(kUpperExpansions, kUpperExpansions + kUpperExpansionCount, c,
                       [](const UpperExpansion& at, uint32_t wanted) { return at.from < wanted; });
  if (found == kUpperExpansions + kUpperExpansionCount || found->from != c)
    return utf8_of(changed(c, kUppercase, kUppercaseCount));
  std::string bytes;
  for (const uint32_t part : found->to)
    if (part != 0) io::utf8_append(part, bytes);
  return bytes;
}

std::string lower_of(uint32_t c) { return c == 0x130 ? "i\u0307" : utf8_of(changed(c, kLowercase, kLowercaseCount)); }

bool is_cased(uint32_t c) { return lower_of(c) != utf8_of(c) || upper_of(c) != utf8_of(c); }

// Whether a capital sigma at character `i` ends a word, where its lower case is another letter (SpecialCasing.txt,
// Final_Sigma). Marks and punctuation within words count as the end of one here.
bool is_final_sigma(std::string_view text, const std::vector<size_t>& starts, size_t i) {
  const auto is_letter = [&](size_t j) {
    return is_cased(io::utf8_decode(text.substr(starts[j], starts[j + 1] - starts[j])));
  };
  return i > 0 && is_letter(i - 1) && (i + 2 >= starts.size() || !is_letter(i + 1));
}

MarkedText mapped(const MarkedText& text, const std::function<std::string(size_t, uint32_t)>& map) {
  const std::vector<size_t> starts = character_starts(text.bytes());
  MarkedText made;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const uint32_t c = io::utf8_decode(std::string_view(text.bytes()).substr(starts[i], starts[i + 1] - starts[i]));
    made.append(map(i, c), text.marks_at(starts[i]));
  }
  return made;
}

std::string lower_at(std::string_view text, const std::vector<size_t>& starts, size_t i, uint32_t c) {
  if (c == 0x3A3) return utf8_of(is_final_sigma(text, starts, i) ? 0x3C2 : 0x3C3);
  return lower_of(c);
}

}  // namespace

MarkedText upper(const MarkedText& text) {
  return mapped(text, [](size_t, uint32_t c) { return upper_of(c); });
}

MarkedText lower(const MarkedText& text) {
  const std::vector<size_t> starts = character_starts(text.bytes());
  return mapped(text, [&](size_t i, uint32_t c) { return lower_at(text.bytes(), starts, i, c); });
}

MarkedText capitalized(const MarkedText& text) {
  const std::vector<size_t> starts = character_starts(text.bytes());
  return mapped(text,
                [&](size_t i, uint32_t c) { return i == 0 ? upper_of(c) : lower_at(text.bytes(), starts, i, c); });
}

MarkedText titled(const MarkedText& text) {
  const std::string_view bytes = text.bytes();
  const std::vector<size_t> starts = character_starts(bytes);
  const auto divides = [&](size_t i) {
    const std::string_view character = bytes.substr(starts[i], starts[i + 1] - starts[i]);
    return is_python_space(io::utf8_decode(character)) ||
           std::string_view("-({[<").find(character) != std::string_view::npos;
  };
  // A word is lower case by itself, so that the last sigma of a word is another letter.
  MarkedText made;
  for (size_t i = 0; i + 1 < starts.size();) {
    size_t end = i + 1;
    if (divides(i)) {
      made.append(text, starts[i], starts[end]);
    } else {
      while (end + 1 < starts.size() && !divides(end)) ++end;
      made.append(upper(text.slice(starts[i], starts[i + 1])));
      made.append(lower(text.slice(starts[i + 1], starts[end])));
    }
    i = end;
  }
  return made;
}

bool is_upper(std::string_view text) {
  const MarkedText marked(text);
  return upper(marked).bytes() == text && lower(marked).bytes() != text;
}

bool is_lower(std::string_view text) {
  const MarkedText marked(text);
  return lower(marked).bytes() == text && upper(marked).bytes() != text;
}

}  // namespace tutti::jinja
