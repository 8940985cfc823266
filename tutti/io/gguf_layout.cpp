#include "tutti/io/gguf_layout.h"

#include <unordered_set>

#include "tutti/core/error.h"
#include "tutti/io/gguf_limits.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

template <class T>
void append_number(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& bytes, std::string_view text) {
  append_number<uint64_t>(bytes, text.size());
  bytes += text;
}

void append_value(std::string& bytes, const MetadataValue& value) {
  append_number(bytes, static_cast<uint32_t>(value.type()));
  if (value.is_array()) {
    append_number(bytes, static_cast<uint32_t>(value.element_type()));
    append_number<uint64_t>(bytes, value.size());
  }
  for (const std::string& text : value.texts()) append_text(bytes, text);
  bytes += value.bytes();
}

}  // namespace

GgufHeader gguf_layout(std::vector<GgufEntry> entries, ModelMetadata metadata) {
  GgufHeader header{.metadata = std::move(metadata), .entries = std::move(entries)};
  for (const auto& [key, value] : header.metadata.entries()) {
    const std::string fault = gguf_name_fault(key, kGgufLongestKey);
    TUTTI_CHECK(fault.empty(), "GGUF: the key {} {}", json_quoted(std::string_view(key).substr(0, kGgufLongestName)),
                fault);
  }
  if (const auto field = header.metadata.find(kGgufAlignmentKey)) {
    header.alignment = field->whole(1, int64_t{1} << 31);
    if (!is_gguf_alignment(header.alignment) || field->value().type() != MetadataType::u32)
      field->fail("is {}, expected u32 and a power of two", field->shown());
  }
  std::unordered_set<std::string_view> names;
  int64_t next = 0;
  for (GgufEntry& entry : header.entries) {
    const std::string fault = gguf_name_fault(entry.name, kGgufLongestName);
    TUTTI_CHECK(fault.empty(), "GGUF: the name of the tensor {} {}", json_quoted(entry.name), fault);
    TUTTI_CHECK(names.insert(entry.name).second, "GGUF: the name '{}' is used twice", entry.name);
    TUTTI_CHECK(entry.shape.size() <= kGgufMostDims, "GGUF: tensor '{}' is {}, a file holds at most {} dims",
                entry.name, entry.shape, kGgufMostDims);
    const std::string wrong = gguf_shape_fault(entry.format, entry.shape);
    TUTTI_CHECK(wrong.empty(), "GGUF: tensor '{}' {}: {}", entry.name, entry.shape, wrong);
    entry.begin = next;
    TUTTI_CHECK(!__builtin_add_overflow(next, *gguf_nbytes(entry.format, entry.shape), &entry.end) &&
                    entry.end <= INT64_MAX - header.alignment,
                "GGUF: the tensors up to '{}' are more than any file holds", entry.name);
    next = gguf_padded(entry.end, header.alignment);
  }
  header.data_start = std::ssize(gguf_header_bytes(header));
  return header;
}

std::string gguf_header_bytes(const GgufHeader& header) {
  std::string bytes(kGgufMagic);
  append_number(bytes, kGgufVersion);
  append_number<uint64_t>(bytes, header.entries.size());
  append_number<uint64_t>(bytes, header.metadata.size());
  for (const auto& [key, value] : header.metadata.entries()) {
    append_text(bytes, key);
    append_value(bytes, value);
  }
  for (const GgufEntry& entry : header.entries) {
    append_text(bytes, entry.name);
    append_number<uint32_t>(bytes, static_cast<uint32_t>(entry.shape.size()));
    for (size_t d = entry.shape.size(); d-- > 0;) append_number<uint64_t>(bytes, static_cast<uint64_t>(entry.shape[d]));
    append_number(bytes, static_cast<uint32_t>(entry.format));
    append_number<uint64_t>(bytes, static_cast<uint64_t>(entry.begin));
  }
  bytes.resize(static_cast<size_t>(gguf_padded(std::ssize(bytes), header.alignment)), '\0');
  return bytes;
}

}  // namespace tutti::io
