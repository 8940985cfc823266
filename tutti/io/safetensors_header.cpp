#include "tutti/io/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "tutti/core/error.h"
#include "tutti/io/file_nbytes.h"
#include "tutti/io/utf8.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kLengthNbytes = 8;
constexpr size_t kDataAlignment = 8;
constexpr int kDeepestNesting = 3;  // header, tensor, offsets

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName kNames[] = {
    {DType::f64, "F64"},          {DType::f32, "F32"},        {DType::f16, "F16"}, {DType::bf16, "BF16"},
    {DType::f8e4m3fn, "F8_E4M3"}, {DType::f8e5m2, "F8_E5M2"}, {DType::i64, "I64"}, {DType::i32, "I32"},
    {DType::i16, "I16"},          {DType::i8, "I8"},          {DType::u8, "U8"},   {DType::boolean, "BOOL"}};

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DTypeName& row : kNames) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

class SafetensorsHeaderReader {
 public:
  SafetensorsHeaderReader(std::span<const std::byte> file, std::string_view path) : file_(file), path_(path) {}

  SafetensorsHeader read() {
    const JsonDocument json(header_text(), {.name = fmt::format("'{}', header", path_)},
                            {.depth = kDeepestNesting, .nbytes = kSafetensorsHeaderLimit});
    if (!json.top().is_object()) json.top().fail("is {}, expected an object", json.top().shown());
    for (const auto& [name, value] : json.top()) {
      if (name == kMetadata) {
        read_metadata(value);
      } else {
        header_.entries.push_back(read_entry(std::string(name), value));
      }
    }
    check_cover();
    return std::move(header_);
  }

 private:
  template <class... Args>
  void check(bool holds, fmt::format_string<Args...> message, Args&&... args) const {
    if (holds) return;
    throw EnvironmentError(fmt::format("'{}' is not a whole safetensors file: {}", path_,
                                       fmt::format(message, std::forward<Args>(args)...)));
  }

  std::string_view header_text() {
    check(file_.size() >= kLengthNbytes, "it has {} bytes, too few for the header's length", file_.size());
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), sizeof(length));
    check(length <= static_cast<uint64_t>(kSafetensorsHeaderLimit), "its header claims {} bytes, the limit is {}",
          length, kSafetensorsHeaderLimit);
    check(length <= file_.size() - kLengthNbytes,
          "its header claims {} bytes, the file has {}; it is cut short or something else", length, file_.size());
    header_.data_start = static_cast<int64_t>(kLengthNbytes + length);
    return {reinterpret_cast<const char*>(file_.data()) + kLengthNbytes, static_cast<size_t>(length)};
  }

  void read_metadata(const JsonValue& metadata) {
    if (!metadata.is_object()) metadata.fail("is {}, expected an object", metadata.shown());
    for (const auto& [key, value] : metadata) header_.metadata.emplace(key, value.text());
  }

  static Extents read_shape(const JsonValue& shape) {
    if (!shape.is_array() || shape.size() > static_cast<size_t>(kMaxDims))
      shape.fail("is {}, expected an array of at most {} sizes", shape.shown(), kMaxDims);
    Extents sizes;
    for (const auto& [none, size] : shape) sizes.push_back(size.whole(0, INT64_MAX));
    return sizes;
  }

  SafetensorsEntry read_entry(const std::string& name, const JsonValue& value) const {
    if (value.size() != 3) value.fail("has {} keys, expected exactly dtype, shape and data_offsets", value.size());
    const JsonValue type = value.at("dtype"), offsets = value.at("data_offsets");
    const std::optional<DType> dtype = dtype_of_name(type.text());
    if (!dtype) type.fail("is {}; known are F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U8 BOOL", type.shown());
    SafetensorsEntry entry{name, *dtype, read_shape(value.at("shape")), 0, 0};
    if (!offsets.is_array() || offsets.size() != 2) offsets.fail("is {}, expected [begin, end]", offsets.shown());
    auto offset = offsets.begin();
    entry.begin = (*offset).value.whole(0, INT64_MAX);
    entry.end = (*++offset).value.whole(0, INT64_MAX);
    const int64_t data_nbytes = static_cast<int64_t>(file_.size()) - header_.data_start;
    check(entry.begin <= entry.end && entry.end <= data_nbytes,
          "tensor '{}' is said to occupy bytes [{}, {}) of {} bytes of data; the file may be cut short", name,
          entry.begin, entry.end, data_nbytes);
    const std::optional<int64_t> expected = file_nbytes(entry.shape, entry.dtype);
    check(expected == entry.end - entry.begin, "tensor '{}' {} {} has {} bytes of data, expected {}", name, entry.shape,
          type.text(), entry.end - entry.begin, expected ? std::to_string(*expected) : "more than any file holds");
    return entry;
  }

  void check_cover() {
    std::vector<SafetensorsEntry>& entries = header_.entries;
    std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    int64_t covered = 0;
    for (const SafetensorsEntry& entry : entries) {
      check(entry.begin >= covered,
            "tensor '{}' begins at byte {} of the data, inside the tensor before it, which ends at {}", entry.name,
            entry.begin, covered);
      check(entry.begin == covered, "bytes {} to {} of the data, before tensor '{}', belong to no tensor", covered,
            entry.begin, entry.name);
      covered = entry.end;
    }
    const int64_t data_nbytes = static_cast<int64_t>(file_.size()) - header_.data_start;
    check(covered == data_nbytes, "the last {} bytes belong to no tensor", data_nbytes - covered);
  }

  std::span<const std::byte> file_;
  std::string_view path_;
  SafetensorsHeader header_;
};

void check_utf8(std::string_view text) {
  TUTTI_CHECK(utf8_valid_prefix_nbytes(text) == text.size(),
              "safetensors: a name or metadata text is not UTF-8 at byte {} of {}; JSON cannot hold it",
              utf8_valid_prefix_nbytes(text), text.size());
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view path) {
  return SafetensorsHeaderReader(file, path).read();
}

SafetensorsHeader safetensors_layout(std::vector<SafetensorsEntry> entries,
                                     std::map<std::string, std::string> metadata) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    const int64_t a_size = itemsize(a.dtype), b_size = itemsize(b.dtype);
    return a_size != b_size ? a_size > b_size : a.name < b.name;
  });
  int64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.begin = offset;
    offset += numel_of(entry.shape) * itemsize(entry.dtype);
    entry.end = offset;
  }
  return {.entries = std::move(entries), .metadata = std::move(metadata)};
}

std::string safetensors_header_bytes(const SafetensorsHeader& header) {
  JsonWriter json;
  json.object();
  std::set<std::string_view> names = {kMetadata};
  if (!header.metadata.empty()) {
    json.key(kMetadata).object();
    for (const auto& [key, value] : header.metadata) {
      check_utf8(key);
      check_utf8(value);
      json.member(key, value);
    }
    json.end();
  }
  for (const SafetensorsEntry& entry : header.entries) {
    check_utf8(entry.name);
    TUTTI_CHECK(names.insert(entry.name).second, "safetensors: the name '{}' is used twice or reserved", entry.name);
    json.key(entry.name).object().member("dtype", safetensors_name_of(entry.dtype)).key("shape").array();
    for (const int64_t size : entry.shape) json.value(size);
    json.end().key("data_offsets").array().value(entry.begin).value(entry.end).end().end();
  }
  std::string text = json.end().take();
  text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  TUTTI_CHECK(static_cast<int64_t>(text.size()) <= kSafetensorsHeaderLimit,
              "safetensors: the header would take {} bytes, the limit is {}; write several files", text.size(),
              kSafetensorsHeaderLimit);
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

std::string_view safetensors_name_of(DType dtype) {
  for (const DTypeName& row : kNames) {
    if (row.dtype == dtype) return row.name;
  }
  throw InternalError(fmt::format("dtype {} has no safetensors name", name_of(dtype)));
}

}  // namespace tutti::io
