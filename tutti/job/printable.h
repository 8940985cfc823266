// Text that other processes have written, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tutti::comm {

// Control characters, with which a terminal can be made to do things, as \xNN; tabs and all other text stay as they
// are.
std::string printable(std::string_view text);
// The same for messages of several lines: line feeds stay, too.
std::string printable_lines(std::string_view text);

}  // namespace tutti::comm
