// The values of a JsonDocument as one array of nodes in the order of the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/runtime/json_document.h"

namespace tutti {

enum class JsonKind : uint8_t {
  null,
  boolean,
  whole,
  big,
  number,
  text,
  array,
  object
};  // big: above the range of int64

struct JsonNode {
  JsonKind kind = JsonKind::null;
  uint32_t parent = 0;
  uint32_t end = 0;    // the node behind this one and all that is in it
  uint32_t count = 0;  // of an array or object; bytes of a text
  union {
    bool boolean;
    int64_t whole;
    uint64_t big;
    double number;
    uint64_t start;  // of a text in `texts`; of an object's entries in `sorted`
  };
};

// A member of an object is two nodes, the text of its key and its value.
class JsonTree {
 public:
  JsonOrigin origin;
  std::vector<JsonNode> nodes;
  std::string texts;
  std::vector<uint32_t> sorted;  // key nodes of large objects, by key

  std::string_view text(uint32_t node) const {
    return std::string_view(texts).substr(nodes[node].start, nodes[node].count);
  }
  std::optional<uint32_t> find(uint32_t object, std::string_view key) const;
  std::string path(uint32_t node) const;
  std::string where(uint32_t node) const;
  [[noreturn]] void fail(uint32_t node, const std::string& message) const;
};

// Objects with more keys have them sorted.
inline constexpr uint32_t kFewKeys = 8;

// Reads `text`, whose size and depth are within the limits.
JsonTree parse_json(std::string_view text, const JsonOrigin& origin, const JsonLimits& limits);

}  // namespace tutti
