#include "tutti/runtime/json_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// How many bytes at the beginning of `text`, which is no ASCII there, may begin a UTF-8 sequence (at least one), and
// whether they are a whole one.
struct Sequence {
  size_t nbytes;
  bool is_whole;
};
Sequence sequence_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte has narrower bounds where the rest would be an overlong form, a surrogate, or above U+10FFFF.
  const unsigned char least = lead == 0xE0   ? 0xA0
                              : lead == 0xF0 ? 0x90
                                             : 0x80,
                      most = lead == 0xED   ? 0x9F
                             : lead == 0xF4 ? 0x8F
                                            : 0xBF;
  size_t i = 1;
  for (; i < length && i < text.size(); ++i) {
    if (i == 1 ? byte(i) < least || byte(i) > most : (byte(i) & 0xC0) != 0x80) break;
  }
  return {i, i == length};
}

void append_escaped(std::string& out, char c) {
  static constexpr char kDigits[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      (((out += "\\u00") += kDigits[c >> 4]) += kDigits[c & 15]);
  }
}

bool is_plain(char c) { return c >= ' ' && c != '"' && c != '\\'; }  // ASCII that stands for itself

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    size_t nbytes = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    if (nbytes > 0) {
      out += text.substr(0, nbytes);
    } else if (static_cast<unsigned char>(text.front()) < 0x80) {
      append_escaped(out, text.front());
      nbytes = 1;
    } else {
      const Sequence sequence = sequence_at(text);
      nbytes = sequence.nbytes;
      out += sequence.is_whole ? text.substr(0, nbytes) : kReplacement;
    }
    text.remove_prefix(nbytes);
  }
  out += '"';
}

template <class Number>
void append_number(std::string& out, Number number) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), number);
  const std::string_view written(digits, static_cast<size_t>(end - digits));
  out += written;
  // So that who reads it back finds a number with a fraction.
  if (std::is_floating_point_v<Number> && written.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 2);
  append_quoted(quoted, text);
  return quoted;
}

void JsonWriter::new_line() {
  if (indent_ > 0) (text_ += '\n').append(levels_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::begin_value() {
  if (std::exchange(after_key_, false) || levels_.empty()) return;
  TUTTI_ASSERT(levels_.back().closing == ']', "a value in an object needs a key");
  if (!std::exchange(levels_.back().is_empty, false)) text_ += ',';
  new_line();
}

JsonWriter& JsonWriter::open(char bracket, char closing) {
  begin_value();
  text_ += bracket;
  levels_.push_back({closing});
  return *this;
}
JsonWriter& JsonWriter::object() { return open('{', '}'); }
JsonWriter& JsonWriter::array() { return open('[', ']'); }

JsonWriter& JsonWriter::end() {
  TUTTI_ASSERT(!levels_.empty() && !after_key_, "nothing is open, or a key has no value");
  const Level closed = levels_.back();
  levels_.pop_back();
  if (!closed.is_empty) new_line();
  text_ += closed.closing;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  TUTTI_ASSERT(!levels_.empty() && levels_.back().closing == '}' && !after_key_, "a key stands in an object");
  if (!std::exchange(levels_.back().is_empty, false)) text_ += ',';
  new_line();
  append_quoted(text_, name);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  begin_value();
  text_ += json;
  return *this;
}
JsonWriter& JsonWriter::value(std::string_view text) {
  begin_value();
  append_quoted(text_, text);
  return *this;
}
JsonWriter& JsonWriter::value(bool truth) { return raw(truth ? "true" : "false"); }
JsonWriter& JsonWriter::value(std::nullptr_t) { return raw("null"); }
JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return value(nullptr);
  begin_value();
  append_number(text_, number);
  return *this;
}
JsonWriter& JsonWriter::value(int64_t number) {
  begin_value();
  append_number(text_, number);
  return *this;
}
JsonWriter& JsonWriter::value(uint64_t number) {
  begin_value();
  append_number(text_, number);
  return *this;
}

std::string JsonWriter::take() {
  TUTTI_ASSERT(levels_.empty() && !after_key_, "{} arrays and objects are still open", levels_.size());
  return std::exchange(text_, {});
}

}  // namespace tutti
