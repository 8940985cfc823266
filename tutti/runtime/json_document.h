// The one door for JSON from outside: files, lines and messages that another program, an older version or nobody we know
// has written. (What we write ourselves needs no door.)
//
// A document is checked as a whole when it is read: its size, how deeply it is nested, UTF-8, numbers that a double or a
// 64-bit integer holds, no key twice in an object. What it says is then asked for by type and range. Every failure is a
// UsageError that names the file and the place: line and column where the text is no JSON, the path of the key where a
// value is not what is expected ("model.merges[3]"). Nothing here recurses, so that no depth exhausts a stack.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

struct JsonLimits {
  int depth = 64;                     // of arrays and objects inside each other
  size_t nbytes = size_t{1} << 30;    // of the text; at most 4 GiB
};

// Where the text comes from, as errors name it.
struct JsonOrigin {
  std::string name;
  int64_t line = 0;  // the text is this line of the file; 0: it is the whole
};

// The bytes of a regular file of at most `most` bytes. UsageError for a folder, a pipe or a longer file;
// EnvironmentError when it is not there or cannot be read.
std::string read_regular_file(const std::string& path, size_t most);

class JsonTree;

// A value in a document, which it must not outlive. A value itself; any thread.
class JsonValue {
 public:
  JsonValue(const JsonTree& tree, uint32_t node) : tree_(&tree), node_(node) {}

  bool is_null() const;
  bool is_boolean() const;
  bool is_whole() const;  // that int64 holds
  bool is_number() const;
  bool is_text() const;
  bool is_array() const;
  bool is_object() const;

  // These are UsageErrors where the value is something else.
  bool boolean() const;
  int64_t whole(int64_t least = std::numeric_limits<int64_t>::min(), int64_t most = std::numeric_limits<int64_t>::max()) const;
  uint64_t natural() const;  // 0 to 2^64 - 1
  double number() const;
  std::string_view text() const;
  std::string string() const { return std::string(text()); }
  size_t size() const;                                          // of an array or object
  JsonValue at(std::string_view key) const;                     // of an object that has the key
  std::optional<JsonValue> find(std::string_view key) const;    // of an object; nothing when the key is not there
  std::optional<JsonValue> find_set(std::string_view key) const;  // the same for a key whose value is null

  // The values of an array or object in order; `key` is empty in an array.
  class Iterator;
  struct Entry;
  Iterator begin() const;
  Iterator end() const;

  std::string path() const;   // "model.merges[3]", "" at the top
  std::string where() const;  // name of the document and path
  std::string shown() const;  // for messages: the value, or what it is, in a few words
  [[noreturn]] void fail_with(const std::string& message) const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    fail_with(fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  void expect_object() const;

  const JsonTree* tree_;
  uint32_t node_;
};

struct JsonValue::Entry {
  std::string_view key;
  JsonValue value;
};

class JsonValue::Iterator {
 public:
  Iterator(const JsonTree& tree, uint32_t node, bool has_keys) : tree_(&tree), node_(node), has_keys_(has_keys) {}
  Entry operator*() const;
  Iterator& operator++();
  bool operator==(const Iterator& other) const { return node_ == other.node_; }

 private:
  const JsonTree* tree_;
  uint32_t node_;
  bool has_keys_;  // nodes are pairs of key and value
};

// Immutable, so any thread may read; copies share the values.
class JsonDocument {
 public:
  JsonDocument(std::string_view text, const JsonOrigin& origin, const JsonLimits& limits = {});
  static JsonDocument read(const std::string& path, const JsonLimits& limits = {});

  JsonValue top() const;

 private:
  std::shared_ptr<const JsonTree> tree_;
};

}  // namespace tutti
