#include "tutti/io/chat_template/python_text.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

size_t last_start(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

size_t next_start(std::string_view text, size_t at) {
  return at + std::max<size_t>(io::utf8_sequence_nbytes(text.substr(at)), 1);
}

uint32_t code_point_at(std::string_view text, size_t at) {
  return io::utf8_decode(text.substr(at, next_start(text, at) - at));
}

// What str.splitlines() ends a line at, apart from \r\n.
bool is_line_end(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_python_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

MarkedText stripped(const MarkedText& text, const std::optional<std::string_view>& characters, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  std::set<std::string_view> wanted;
  for (size_t at = 0; characters && at < characters->size();) {
    const size_t next = next_start(*characters, at);
    wanted.insert(characters->substr(at, next - at));
    at = next;
  }
  const auto goes = [&](size_t begin, size_t end) {
    const std::string_view character = bytes.substr(begin, end - begin);
    return characters ? wanted.contains(character) : is_python_space(io::utf8_decode(character));
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && goes(begin, next_start(bytes, begin))) begin = next_start(bytes, begin);
  while (right && begin < end && goes(last_start(bytes, end), end)) end = last_start(bytes, end);
  return text.slice(begin, end);
}

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // The function of the C library is linear; std::string's is not.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view wanted) {
  const std::string back(text.rbegin(), text.rend()), wanted_back(wanted.rbegin(), wanted.rend());
  const size_t found = find_text(back, wanted_back, 0);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

std::vector<MarkedText> split_at(const MarkedText& text, std::string_view separator, int64_t most, size_t most_parts) {
  std::vector<MarkedText> parts;
  size_t begin = 0;
  for (; most != 0 && parts.size() <= most_parts; --most) {
    const size_t end = find_text(text.bytes(), separator, begin);
    if (end == std::string::npos) break;
    parts.push_back(text.slice(begin, end));
    begin = end + separator.size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

std::vector<MarkedText> split_at_right(const MarkedText& text, std::string_view separator, int64_t most,
                                       size_t most_parts) {
  const std::string back(text.bytes().rbegin(), text.bytes().rend()), wanted(separator.rbegin(), separator.rend());
  std::vector<MarkedText> parts;
  size_t end = text.size();
  for (; most != 0 && parts.size() <= most_parts; --most) {
    const size_t found = find_text(back, wanted, text.size() - end);
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(text.size() - found, end));
    end = text.size() - found - separator.size();
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<MarkedText> split_at_spaces(const MarkedText& text, int64_t most, size_t most_parts) {
  const std::string_view bytes = text.bytes();
  std::vector<MarkedText> parts;
  const auto skip = [&](size_t at, bool spaces) {
    while (at < bytes.size() && is_python_space(code_point_at(bytes, at)) == spaces) at = next_start(bytes, at);
    return at;
  };
  for (size_t at = skip(0, true); at < bytes.size() && parts.size() <= most_parts; at = skip(at, true), --most) {
    const size_t end = most == 0 ? bytes.size() : skip(at, false);
    parts.push_back(text.slice(at, end));
    at = end;
  }
  return parts;
}

std::vector<MarkedText> split_lines(const MarkedText& text, bool keeps_ends, size_t most_parts) {
  const std::string_view bytes = text.bytes();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size() && lines.size() <= most_parts;) {
    const uint32_t c = code_point_at(bytes, at);
    size_t next = next_start(bytes, at);
    if (is_line_end(c)) {
      if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.slice(begin, keeps_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

std::optional<MarkedText> replaced(const MarkedText& text, std::string_view old, const MarkedText& with, int64_t most,
                                   size_t most_nbytes) {
  const std::string_view bytes = text.bytes();
  MarkedText made;
  size_t kept = 0;   // what is before it has been written
  size_t found = 0;  // where the next search begins
  for (; most != 0 && found <= bytes.size(); --most) {
    const size_t at = find_text(bytes, old, found);
    if (at == std::string_view::npos) break;
    made.append(text, kept, at);
    made.append(with);
    kept = at + old.size();
    found = old.empty() ? (at < bytes.size() ? next_start(bytes, at) : at + 1) : kept;
    if (made.size() > most_nbytes) return std::nullopt;
  }
  made.append(text, kept, bytes.size());
  return made;
}

std::vector<size_t> character_starts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at = next_start(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

MarkedText html_escaped(const MarkedText& text) {
  MarkedText made;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                    : c == '"'  ? "&#34;"
                                                : std::string_view();
    if (entity.empty()) made.append(text, i, i + 1);
    else made.append(entity, text.marks_at(i));
  }
  return made;
}

}  // namespace tutti::jinja
