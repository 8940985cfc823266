// Libraries that are opened when they are first needed: the code generator, products of other libraries. They lie beside the
// program or library that asks.
#pragma once

#include <optional>
#include <string>

namespace tutti::codegen {

struct PluginSearch {
  std::optional<std::string> path;
  std::string places;  // that were looked at, for messages
};

// The first file of that name in: the folder of this library, of the program, lib/ beside it, the dynamic linker's search path.
PluginSearch find_plugin_file(const char* file_name);

}  // namespace tutti::codegen
