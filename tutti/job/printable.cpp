#include "tutti/job/printable.h"

#include <fmt/format.h>

namespace tutti::comm {
namespace {

std::string without_controls(std::string_view text, bool keeps_lines) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, the second set of control characters, are C2 80 to C2 9F in UTF-8.
    const bool begins_control = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (begins_control) {
      shown += fmt::format("\\x{:02x}\\x{:02x}", byte, static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 && byte != '\t' && !(keeps_lines && byte == '\n')) || byte == 0x7F) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace

std::string printable(std::string_view text) { return without_controls(text, false); }
std::string printable_lines(std::string_view text) { return without_controls(text, true); }

}  // namespace tutti::comm
