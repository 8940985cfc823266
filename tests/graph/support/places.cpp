#include "tests/graph/support/places.h"

#include <regex>

namespace tutti::graph_test {

std::string without_place(const std::string& text) {
  static const std::regex behind(R"( \[[a-z_]+ at [a-z_]+\.cpp:[0-9]+( \([^)]*\))?\]$)"),
      inside(R"( at [a-z_]+\.cpp:[0-9]+( \([^)]*\))?:)");
  return std::regex_replace(std::regex_replace(text, behind, ""), inside, ":");
}

}  // namespace tutti::graph_test
