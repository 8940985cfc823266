#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/core/error.h"
#include "tutti/runtime/json_tree.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestComplaint = 120;

// "name:3:14", one-based; a text that is itself line 3 begins there.
std::string place_of(std::string_view text, size_t offset, const JsonOrigin& origin) {
  const std::string_view before = text.substr(0, offset);
  const auto lines = static_cast<int64_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t column = before.size() - (lines == 0 ? 0 : before.rfind('\n') + 1) + 1;
  return fmt::format("{}:{}:{}", origin.name, std::max<int64_t>(origin.line, 1) + lines, column);
}

// The offset of the bracket that opens one level too many, or npos. Text that is no JSON may be misread behind the
// place where it stops being JSON, and the parser stops there.
size_t too_deep_at(std::string_view text, int most) {
  int depth = 0;
  bool is_inside_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_inside_text) {
      if (c == '\\') ++i;
      else if (c == '"') is_inside_text = false;
    } else if (c == '"') {
      is_inside_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

// What the parser says without its own account of the place; what it quotes may be long and no text at all.
std::string complaint_of(std::string_view said) {
  if (const size_t own = said.find("] "); own != std::string_view::npos) said.remove_prefix(own + 2);
  if (const size_t colon = said.find(": "); said.starts_with("parse error") && colon != std::string_view::npos)
    said.remove_prefix(colon + 2);
  std::string complaint(said.substr(0, kLongestComplaint));
  for (char& c : complaint) {
    if (c < ' ' || c > '~') c = '?';
  }
  return said.size() > kLongestComplaint ? complaint + "..." : complaint;
}

// Takes what the parser finds, in the order of the text.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, JsonTree& tree, size_t most_values)
      : source_(text), tree_(tree), most_values_(most_values) {}

  bool null() override { return add({.kind = JsonKind::null}); }
  bool boolean(bool value) override { return add({.kind = JsonKind::boolean, .boolean = value}); }
  bool number_integer(Json::number_integer_t value) override { return add({.kind = JsonKind::whole, .whole = value}); }
  bool number_unsigned(Json::number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return add({.kind = JsonKind::big, .big = value});
    return add({.kind = JsonKind::whole, .whole = static_cast<int64_t>(value)});
  }
  bool number_float(Json::number_float_t value, const std::string&) override {
    return add({.kind = JsonKind::number, .number = value});
  }
  bool string(std::string& value) override { return add_text(value); }
  bool binary(Json::binary_t&) override { return false; }  // not in JSON
  bool start_array(size_t) override { return open(JsonKind::array); }
  bool end_array() override { return close(); }
  bool start_object(size_t) override { return open(JsonKind::object); }
  bool key(std::string& value) override {
    ++tree_.nodes[open_].count;
    return add_text(value);
  }
  bool end_object() override {
    sort_keys(open_);
    return close();
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    // The position counts what was read, the end of the text included.
    const size_t offset = std::min(position - (position > 0), source_.size());
    throw UsageError(fmt::format("{}: byte {}: not JSON: {}", place_of(source_, offset, tree_.origin), offset + 1,
                                 complaint_of(error.what())));
  }

 private:
  bool add(JsonNode node) {
    TUTTI_CHECK(tree_.nodes.size() < most_values_,
                "{}: more than {} values, keys included, are not read here; divide the text", tree_.where(0),
                most_values_);
    node.parent = open_;
    node.end = static_cast<uint32_t>(tree_.nodes.size()) + 1;
    if (!tree_.nodes.empty() && tree_.nodes[open_].kind == JsonKind::array) ++tree_.nodes[open_].count;
    tree_.nodes.push_back(node);
    return true;
  }
  bool add_text(const std::string& value) {
    JsonNode node{.kind = JsonKind::text, .count = static_cast<uint32_t>(value.size())};
    node.start = tree_.texts.size();
    tree_.texts += value;
    return add(node);
  }
  bool open(JsonKind kind) {
    add({.kind = kind, .start = 0});
    open_ = static_cast<uint32_t>(tree_.nodes.size()) - 1;
    return true;
  }
  bool close() {
    tree_.nodes[open_].end = static_cast<uint32_t>(tree_.nodes.size());
    open_ = tree_.nodes[open_].parent;
    return true;
  }

  void sort_keys(uint32_t object) {
    std::vector<uint32_t> keys;
    for (uint32_t key = object + 1; key < tree_.nodes.size(); key = tree_.nodes[key + 1].end) keys.push_back(key);
    std::sort(keys.begin(), keys.end(), [&](uint32_t a, uint32_t b) { return tree_.text(a) < tree_.text(b); });
    const auto twice = std::adjacent_find(keys.begin(), keys.end(),
                                          [&](uint32_t a, uint32_t b) { return tree_.text(a) == tree_.text(b); });
    if (twice != keys.end()) tree_.fail(object, fmt::format("has the key '{}' twice", tree_.text(*twice)));
    if (keys.size() <= kFewKeys) return;
    tree_.nodes[object].start = tree_.sorted.size();
    tree_.sorted.insert(tree_.sorted.end(), keys.begin(), keys.end());
  }

  std::string_view source_;
  JsonTree& tree_;
  const size_t most_values_;
  uint32_t open_ = 0;  // the innermost array or object
};

}  // namespace

JsonTree parse_json(std::string_view text, const JsonOrigin& origin, const JsonLimits& limits) {
  TUTTI_CHECK(text.size() <= limits.nbytes, "{}: {} bytes are more than is read here ({} at most)", origin.name,
              text.size(), limits.nbytes);
  if (const size_t at = too_deep_at(text, limits.depth); at != std::string_view::npos)
    throw UsageError(
        fmt::format("{}: byte {}: nested deeper than {} levels", place_of(text, at, origin), at + 1, limits.depth));
  // The parser takes this byte for the end.
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    throw UsageError(fmt::format("{}: byte {}: not JSON: a byte of value 0", place_of(text, at, origin), at + 1));
  JsonTree tree;
  tree.origin = origin;
  Builder builder(text, tree, limits.values);
  Json::sax_parse(text, &builder);
  return tree;
}

}  // namespace tutti
