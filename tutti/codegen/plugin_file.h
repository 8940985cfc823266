// Libraries that are opened when they are first needed: the code generator and the matrix products of other libraries. They are
// installed next to the program or library that loads them.
#pragma once

#include <optional>
#include <string>

namespace tutti::codegen {

struct PluginSearch {
  std::optional<std::string> path;
  std::string places;  // the places that were searched, for messages
};

// The first file of that name in: the folder of this library, the folder of the program, lib/ next to it, the dynamic linker's search path.
PluginSearch find_plugin_file(const char* file_name);

}  // namespace tutti::codegen
