#include "tutti/runtime/json_document.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/runtime/json_tree.h"

namespace tutti {
namespace {

constexpr size_t kLongestShown = 60;

// As in "is a number, expected ...".
const char* words_for(JsonKind kind) {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "true or false";
    case JsonKind::whole:
    case JsonKind::big:
    case JsonKind::number:
      return "a number";
    case JsonKind::text:
      return "a string";
    case JsonKind::array:
      return "an array";
    case JsonKind::object:
      return "an object";
  }
  throw InternalError("a kind of JSON that is none");
}

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

std::string read_regular_file(const std::string& path, size_t most) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};  // a pipe must not hang
  struct stat info{};
  TUTTI_CHECK_ENV(file.value >= 0 && fstat(file.value, &info) == 0, "{}: cannot be read: {}", path,
                  detail::errno_text(errno));
  TUTTI_CHECK(!S_ISDIR(info.st_mode), "{}: cannot be read: it is a folder; name the file in it", path);
  TUTTI_CHECK(S_ISREG(info.st_mode), "{}: cannot be read: it is not a regular file", path);
  TUTTI_CHECK(static_cast<uint64_t>(info.st_size) <= most, "{}: {} bytes are more than is read here ({} at most)", path,
              info.st_size, most);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = read(file.value, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    TUTTI_CHECK_ENV(n >= 0, "{}: cannot be read: {}", path, detail::errno_text(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

std::optional<uint32_t> JsonTree::find(uint32_t object, std::string_view key) const {
  const JsonNode& node = nodes[object];
  if (node.count <= kFewKeys) {
    for (uint32_t i = object + 1; i < node.end; i = nodes[i + 1].end) {
      if (text(i) == key) return i + 1;
    }
    return std::nullopt;
  }
  const auto first = sorted.begin() + static_cast<std::ptrdiff_t>(node.start), last = first + node.count;
  const auto found =
      std::lower_bound(first, last, key, [&](uint32_t entry, std::string_view wanted) { return text(entry) < wanted; });
  return found != last && text(*found) == key ? std::optional(*found + 1) : std::nullopt;
}

std::string JsonTree::path(uint32_t node) const {
  std::vector<std::string> parts;
  for (; node != 0; node = nodes[node].parent) {
    const uint32_t parent = nodes[node].parent;
    if (nodes[parent].kind == JsonKind::object) {
      parts.push_back(fmt::format("{}{}", parent == 0 ? "" : ".", text(node - 1).substr(0, kLongestShown)));
      continue;
    }
    size_t index = 0;
    for (uint32_t i = parent + 1; i < node; i = nodes[i].end) ++index;
    parts.push_back(fmt::format("[{}]", index));
  }
  std::string path;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) path += *part;
  return path;
}

std::string JsonTree::where(uint32_t node) const {
  const std::string own = path(node),
                    name = origin.line > 0 ? fmt::format("{}:{}", origin.name, origin.line) : origin.name;
  return own.empty() ? name : fmt::format("{}: {}", name, own);
}

void JsonTree::fail(uint32_t node, const std::string& message) const {
  throw UsageError(fmt::format("{}: {}", where(node), message));
}

bool JsonValue::is_null() const { return tree_->nodes[node_].kind == JsonKind::null; }
bool JsonValue::is_boolean() const { return tree_->nodes[node_].kind == JsonKind::boolean; }
bool JsonValue::is_whole() const { return tree_->nodes[node_].kind == JsonKind::whole; }
bool JsonValue::is_number() const {
  return is_whole() || tree_->nodes[node_].kind == JsonKind::number || tree_->nodes[node_].kind == JsonKind::big;
}
bool JsonValue::is_text() const { return tree_->nodes[node_].kind == JsonKind::text; }
bool JsonValue::is_array() const { return tree_->nodes[node_].kind == JsonKind::array; }
bool JsonValue::is_object() const { return tree_->nodes[node_].kind == JsonKind::object; }

std::string JsonValue::path() const { return tree_->path(node_); }
std::string JsonValue::where() const { return tree_->where(node_); }
void JsonValue::fail_with(const std::string& message) const { tree_->fail(node_, message); }

std::string JsonValue::shown() const {
  const JsonNode& node = tree_->nodes[node_];
  switch (node.kind) {
    case JsonKind::boolean:
      return node.boolean ? "true" : "false";
    case JsonKind::whole:
      return fmt::format("{}", node.whole);
    case JsonKind::big:
      return fmt::format("{}", node.big);
    case JsonKind::number:
      return fmt::format("{:#}", node.number);  // 32.0 is no integer, and does not look like one
    case JsonKind::text:
      return fmt::format("\"{}\"{}", text().substr(0, kLongestShown), node.count > kLongestShown ? "..." : "");
    case JsonKind::array:
      return fmt::format("an array of {}", node.count);
    case JsonKind::null:
    case JsonKind::object:
      return words_for(node.kind);
  }
  throw InternalError("a kind of JSON that is none");
}

bool JsonValue::boolean() const {
  if (!is_boolean()) fail("is {}, expected true or false", shown());
  return tree_->nodes[node_].boolean;
}

int64_t JsonValue::whole(int64_t least, int64_t most) const {
  const JsonNode& node = tree_->nodes[node_];
  const bool fits = node.kind == JsonKind::whole && node.whole >= least && node.whole <= most;
  const bool is_any = least == std::numeric_limits<int64_t>::min() && most == std::numeric_limits<int64_t>::max();
  if (!fits && is_any) fail("is {}, expected a whole number of 64 bits", shown());
  if (!fits) fail("is {}, expected a whole number from {} to {}", shown(), least, most);
  return node.whole;
}

uint64_t JsonValue::natural() const {
  const JsonNode& node = tree_->nodes[node_];
  if (node.kind == JsonKind::big) return node.big;
  if (node.kind != JsonKind::whole || node.whole < 0)
    fail("is {}, expected a whole number from 0 to 2^64 - 1", shown());
  return static_cast<uint64_t>(node.whole);
}

double JsonValue::number() const {
  const JsonNode& node = tree_->nodes[node_];
  if (!is_number()) fail("is {}, expected a number", shown());
  return node.kind == JsonKind::number ? node.number
         : node.kind == JsonKind::big  ? static_cast<double>(node.big)
                                       : static_cast<double>(node.whole);
}

std::string_view JsonValue::text() const {
  if (!is_text()) fail("is {}, expected a string", shown());
  return tree_->text(node_);
}

size_t JsonValue::size() const {
  if (!is_array() && !is_object()) fail("is {}, expected an array or object", shown());
  return tree_->nodes[node_].count;
}

void JsonValue::expect_object() const {
  if (!is_object()) fail("is {}, expected an object", shown());
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  expect_object();
  const std::optional<uint32_t> node = tree_->find(node_, key);
  return node ? std::optional(JsonValue(*tree_, *node)) : std::nullopt;
}

std::optional<JsonValue> JsonValue::find_set(std::string_view key) const {
  const std::optional<JsonValue> value = find(key);
  return value && !value->is_null() ? value : std::nullopt;
}

JsonValue JsonValue::at(std::string_view key) const {
  const std::optional<JsonValue> value = find(key);
  if (!value) fail("has no '{}'", key);
  return *value;
}

JsonValue::Iterator JsonValue::begin() const {
  size();
  return {*tree_, node_ + 1, is_object()};
}

JsonValue::Iterator JsonValue::end() const { return {*tree_, tree_->nodes[node_].end, is_object()}; }

JsonValue::Entry JsonValue::Iterator::operator*() const {
  if (has_keys_) return {tree_->text(node_), JsonValue(*tree_, node_ + 1)};
  return {{}, JsonValue(*tree_, node_)};
}

JsonValue::Iterator& JsonValue::Iterator::operator++() {
  node_ = tree_->nodes[has_keys_ ? node_ + 1 : node_].end;
  return *this;
}

JsonDocument::JsonDocument(std::string_view text, const JsonOrigin& origin, const JsonLimits& limits)
    : tree_(std::make_shared<const JsonTree>(parse_json(text, origin, limits))) {}

JsonDocument JsonDocument::read(const std::string& path, const JsonLimits& limits) {
  return JsonDocument(read_regular_file(path, limits.nbytes), {.name = path}, limits);
}

JsonValue JsonDocument::top() const { return {*tree_, 0}; }

}  // namespace tutti
