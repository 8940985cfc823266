// Libraries that are opened when they are first needed: the code generator and the matrix products of other libraries.
// They are installed next to the program or library that loads them.
#pragma once

#include <optional>
#include <string>

namespace tutti::codegen {

struct PluginSearch {
  std::optional<std::string> path;
  std::string places;  // the places that were searched, for messages
};

// The first file of that name in: the folder that the library with this code was loaded from, whatever the working
// folder is now, the folder that a link there leads to, the folder of the program; lib/ next to these; where the
// dynamic linker looks for what that library needs (its run path), and for what the program needs.
PluginSearch find_plugin_file(const char* file_name);

}  // namespace tutti::codegen
