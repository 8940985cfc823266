// The methods of Python's str, on text that carries marks. Positions are bytes, which fall on characters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/chat_template/marked_text.h"

namespace tutti::jinja {

// What str.isspace() says of a character.
bool is_python_space(uint32_t code_point);

// The places of `wanted`, in time that grows with the sizes, not their product; npos where it is not.
size_t find_text(std::string_view text, std::string_view wanted, size_t from);
size_t find_last_text(std::string_view text, std::string_view wanted);

// Without the characters of `characters` at the ends that are asked for; nullopt: without white space.
MarkedText stripped(const MarkedText& text, const std::optional<std::string_view>& characters, bool left, bool right);

// At each `separator`, at most `most` times (negative: at all), from the left. An empty separator is the caller's
// error. All of these end early when there are more than `most_parts` parts.
std::vector<MarkedText> split_at(const MarkedText& text, std::string_view separator, int64_t most, size_t most_parts);
// The same from the right, with the parts in their order.
std::vector<MarkedText> split_at_right(const MarkedText& text, std::string_view separator, int64_t most,
                                       size_t most_parts);
// At runs of white space, of which none is kept but that behind the last part when `most` ends the division.
std::vector<MarkedText> split_at_spaces(const MarkedText& text, int64_t most, size_t most_parts);
std::vector<MarkedText> split_lines(const MarkedText& text, bool keeps_ends, size_t most_parts);

// The first `most` (negative: all) places of `old` become `with`; an empty `old` is before every character and at the
// end. nullopt when the result would be larger than `most_nbytes`.
std::optional<MarkedText> replaced(const MarkedText& text, std::string_view old, const MarkedText& with, int64_t most,
                                   size_t most_nbytes);

MarkedText upper(const MarkedText& text);
MarkedText lower(const MarkedText& text);
MarkedText capitalized(const MarkedText& text);
// The filter title of Jinja2: the letter behind white space or one of -({[< is upper case, the others are lower case.
MarkedText titled(const MarkedText& text);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

// Where each character begins, and the end of the text.
std::vector<size_t> character_starts(std::string_view text);

// For markupsafe: & < > ' " as entities.
MarkedText html_escaped(const MarkedText& text);

}  // namespace tutti::jinja
