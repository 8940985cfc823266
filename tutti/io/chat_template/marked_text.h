// MarkedText: UTF-8 text that remembers, for each byte, whether a user wrote it and whether the assistant says it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::jinja {

// Marks are bits.
using Marks = uint8_t;
constexpr Marks kFromUser = 1;   // the bytes come from a message, a tool, a document or an extra variable
constexpr Marks kAssistant = 2;  // the bytes were written inside {% generation %}

class MarkedText {
 public:
  struct Run {
    size_t end;
    Marks marks;
  };

  MarkedText() = default;
  explicit MarkedText(std::string_view bytes, Marks marks = 0) { append(bytes, marks); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool is_empty() const { return bytes_.empty(); }
  // The marks of byte `i`.
  Marks marks_at(size_t i) const;
  // Neighbouring bytes with the same marks, in order; empty when no byte has marks.
  const std::vector<Run>& runs() const { return runs_; }

  void append(std::string_view bytes, Marks marks = 0);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  void append(const MarkedText& other, size_t begin, size_t end);
  MarkedText slice(size_t begin, size_t end) const;
  // Adds `marks` to all bytes.
  void mark(Marks marks);

  // The text was made by the filter `safe`: + escapes for HTML what is added to it, as markupsafe does.
  bool is_markup = false;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace tutti::jinja
