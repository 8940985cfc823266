// JsonDocument: reads untrusted JSON, that is, files, lines and messages that may come from other programs or older
// versions.
//
// A document is checked as a whole when it is read: its size, number of values, nesting depth, UTF-8, numbers that fit
// a double or a 64-bit integer, no repeated key in an object. Values are then requested by type and range. Every
// failure is a UsageError that names the file and the place: line and column where the text is not valid JSON, the path
// of the key where a value is not as expected ("model.merges[3]"). The implementation does not recurse, so deep nesting
// cannot exhaust the stack.
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
  int depth = 64;                   // nesting of arrays and objects
  size_t nbytes = size_t{1} << 30;  // length of the text; at most 4 GiB
  size_t values = size_t{1} << 24;  // keys included: each takes 24 to 48 bytes of memory, and may be 2 bytes of text
};

// The origin of the text, for messages.
struct JsonOrigin {
  std::string name;
  int64_t line = 0;  // the text is this line of the file; 0: it is the whole
};

// Reads a regular file of at most `most` bytes. UsageError for a folder, a pipe or a longer file;
// EnvironmentError when it does not exist or cannot be read.
std::string read_regular_file(const std::string& path, size_t most);

class JsonTree;

// A value in a document, which must outlive it. Cheap to copy; may be used by any thread.
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

  // These throw UsageError when the value has another type.
  bool boolean() const;
  int64_t whole(int64_t least = std::numeric_limits<int64_t>::min(),
                int64_t most = std::numeric_limits<int64_t>::max()) const;
  uint64_t natural() const;  // 0 to 2^64 - 1
  double number() const;
  std::string_view text() const;
  std::string string() const { return std::string(text()); }
  size_t size() const;                                            // the number of entries of an array or object
  JsonValue at(std::string_view key) const;                       // UsageError when the object does not have the key
  std::optional<JsonValue> find(std::string_view key) const;      // nullopt when the object does not have the key
  std::optional<JsonValue> find_set(std::string_view key) const;  // also nullopt when the value is null

  // The values of an array or object in order; `key` is empty in an array.
  class Iterator;
  struct Entry;
  Iterator begin() const;
  Iterator end() const;

  std::string path() const;   // "model.merges[3]", "" at the top
  std::string where() const;  // name of the document and path
  std::string shown() const;  // for messages: the value, or its type, in a few words
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
  bool has_keys_;  // the nodes are pairs of key and value
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
