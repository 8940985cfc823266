#include "tutti/io/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "tutti/core/error.h"
#include "tutti/io/gguf_limits.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr uint32_t kOldest = 2;
constexpr size_t kShortestKey = 8 + 1 + 4 + 1, kShortestTensor = 8 + 1 + 4 + 4 + 8;  // bytes in a file
// What is short in a file takes many times as much memory, so counts have limits of their own, far above real files.
constexpr uint64_t kMostKeys = uint64_t{1} << 16, kMostTensors = uint64_t{1} << 20;
constexpr uint64_t kMostTexts = uint64_t{1} << 24;  // of an array

class GgufHeaderReader {
 public:
  GgufHeaderReader(std::span<const std::byte> file, std::string_view path) : file_(file), path_(path) {}

  GgufHeader read() {
    header_.metadata = ModelMetadata(std::string(path_));
    read_version();
    const auto tensors = number<uint64_t>("the number of tensors"), keys = number<uint64_t>("the number of keys");
    check(tensors <= left() / kShortestTensor, at_ - 16, "it claims {} tensors, and {} bytes are left", tensors,
          left());
    check(keys <= left() / kShortestKey, at_ - 8, "it claims {} keys, and {} bytes are left", keys, left());
    check(tensors <= kMostTensors, at_ - 16, "it has {} tensors, the limit is {}", tensors, kMostTensors);
    check(keys <= kMostKeys, at_ - 8, "it has {} keys, the limit is {}", keys, kMostKeys);
    for (uint64_t k = 0; k < keys; ++k) read_key(k, keys);
    read_alignment();
    for (uint64_t t = 0; t < tensors; ++t) read_tensor(t, tensors);
    check_data();
    return std::move(header_);
  }

 private:
  template <class... Args>
  void check(bool holds, size_t at, fmt::format_string<Args...> message, Args&&... args) const {
    if (holds) return;
    throw EnvironmentError(fmt::format("'{}' is not a whole GGUF file: {}{} (byte {})", path_, subject_,
                                       fmt::format(message, std::forward<Args>(args)...), at));
  }

  size_t left() const { return file_.size() - at_; }

  // The next `nbytes` bytes.
  std::string_view bytes(uint64_t nbytes, std::string_view what) {
    check(nbytes <= left(), at_, "{} takes {} bytes, and {} are left; the file may be cut short", what, nbytes, left());
    const std::string_view taken(reinterpret_cast<const char*>(file_.data()) + at_, static_cast<size_t>(nbytes));
    at_ += taken.size();
    return taken;
  }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, bytes(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view text(std::string_view what) { return bytes(number<uint64_t>(what), what); }

  void read_version() {
    const std::string_view magic = bytes(kGgufMagic.size(), "the magic");
    check(magic != "FUGG", 0, "it is big-endian; convert it to little-endian");
    check(magic == kGgufMagic, 0, "it begins with {} instead of GGUF", json_quoted(magic));
    header_.version = number<uint32_t>("the version");
    check(header_.version == 0 || (header_.version & 0xffffU) != 0, 4,
          "its version is {:#x}, so it is big-endian; convert it to little-endian", header_.version);
    check(header_.version >= kOldest && header_.version <= kGgufVersion, 4, "it has version {}; known are {} and {}",
          header_.version, kOldest, kGgufVersion);
  }

  MetadataType read_type(std::string_view what) {
    const size_t at = at_;
    const auto type = number<uint32_t>(what);
    check(type <= static_cast<uint32_t>(MetadataType::f64), at, "{} is {}; known are 0 to 12", what, type);
    return static_cast<MetadataType>(type);
  }

  std::string read_numbers(MetadataType type, uint64_t count) {
    const size_t each = metadata_nbytes(type), at = at_;
    check(count <= left() / each, at, "its {} values of type {} take {} bytes each, and {} are left", count,
          name_of(type), each, left());
    const std::string_view values = bytes(count * each, "its value");
    if (type == MetadataType::boolean) {
      const auto odd = std::find_if(values.begin(), values.end(), [](char c) { return c != 0 && c != 1; });
      const auto i = static_cast<size_t>(odd - values.begin());
      check(odd == values.end(), at + i, "a bool is {}, expected 0 or 1",
            i < values.size() ? int{static_cast<unsigned char>(values[i])} : 0);
    }
    return std::string(values);
  }

  MetadataValue read_value() {
    const MetadataType type = read_type("its type");
    if (type == MetadataType::text) return std::string(text("its text"));
    if (type != MetadataType::array) return {type, read_numbers(type, 1), false};
    const size_t at = at_;
    const MetadataType element = read_type("the type of its elements");
    check(element != MetadataType::array, at, "it is an array of arrays, which ggml does not read either");
    const auto count = number<uint64_t>("the number of its elements");
    if (element != MetadataType::text) return {element, read_numbers(element, count), true};
    check(count <= left() / sizeof(uint64_t), at_ - 8, "it claims {} texts, and {} bytes are left", count, left());
    check(count <= kMostTexts, at_ - 8, "it has {} texts, the limit is {}", count, kMostTexts);
    std::vector<std::string> texts;
    texts.reserve(static_cast<size_t>(count));
    for (uint64_t i = 0; i < count; ++i) texts.emplace_back(text("a text of its array"));
    return texts;
  }

  void read_key(uint64_t number, uint64_t count) {
    subject_ = fmt::format("key {} of {}: ", number + 1, count);
    const size_t at = at_;
    const std::string_view key = text("its name");
    const std::string fault = gguf_name_fault(key, kGgufLongestKey);
    check(fault.empty(), at, "its name {}", fault);
    subject_ = fmt::format("key '{}': ", key);
    check(!header_.metadata.contains(key), at, "it is there twice");
    header_.metadata.set(std::string(key), read_value());
    subject_.clear();
  }

  void read_alignment() {
    const auto field = header_.metadata.find(kGgufAlignmentKey);
    if (!field) return;
    const bool is_size = !field->is_array() && field->value().type() == MetadataType::u32;
    check(is_size && is_gguf_alignment(*field->value().whole()), at_, "key '{}' is {}, expected u32 and a power of two",
          kGgufAlignmentKey, field->shown());
    header_.alignment = *field->value().whole();
  }

  Extents read_shape() {
    const size_t at = at_;
    const auto ndim = number<uint32_t>("its number of dims");
    check(ndim <= kGgufMostDims, at, "it has {} dims, the limit is {}", ndim, kGgufMostDims);
    Extents shape;
    for (uint32_t d = 0; d < ndim; ++d) {
      const size_t place = at_;
      const auto size = number<uint64_t>("its sizes");
      check(std::in_range<int64_t>(size), place, "its size {} is {}, more than any file holds", d, size);
      shape.insert(0, static_cast<int64_t>(size));
    }
    return shape;
  }

  void read_tensor(uint64_t index, uint64_t count) {
    subject_ = fmt::format("tensor {} of {}: ", index + 1, count);
    const size_t at = at_;
    const std::string_view name = text("its name");
    const std::string fault = gguf_name_fault(name, kGgufLongestName);
    check(fault.empty(), at, "its name {}", fault);
    subject_ = fmt::format("tensor '{}': ", name);
    check(names_.insert(name).second, at, "it is there twice");
    const size_t sizes_at = at_;
    GgufEntry entry{.name = std::string(name), .shape = read_shape()};
    const size_t type_at = at_;
    const auto type = number<uint32_t>("its type");
    const BlockFormatRow* row = find_block_format(type);
    check(row != nullptr, type_at, "its type {} is unknown", type);
    entry.format = row->format;
    const std::string wrong = gguf_shape_fault(entry.format, entry.shape);
    check(wrong.empty(), sizes_at, "{}", wrong);
    const size_t offset_at = at_;
    const auto offset = number<uint64_t>("its offset");
    check(offset == static_cast<uint64_t>(next_), offset_at,
          "its data begins at byte {} of the data, expected {}, where the tensors before it end", offset, next_);
    const int64_t nbytes = *gguf_nbytes(entry.format, entry.shape);
    // Checked here so that sums stay in range; where data starts is known when all tensors are.
    check(nbytes <= static_cast<int64_t>(file_.size()) && next_ <= static_cast<int64_t>(file_.size()) - nbytes,
          offset_at, "it takes bytes [{}, {} + {}) of the data, and the file has {}; it may be cut short", next_, next_,
          nbytes, file_.size());
    entry.begin = next_;
    entry.end = next_ + nbytes;
    next_ = gguf_padded(entry.end, header_.alignment);
    header_.entries.push_back(std::move(entry));
    subject_.clear();
  }

  // The padding behind the last tensor may be missing, and more may follow it, as ggml reads such files.
  void check_data() {
    header_.data_start = gguf_padded(static_cast<int64_t>(at_), header_.alignment);
    for (const GgufEntry& entry : header_.entries) {
      if (entry.begin == entry.end) continue;
      subject_ = fmt::format("tensor '{}': ", entry.name);
      check(entry.end <= static_cast<int64_t>(file_.size()) - header_.data_start,
            static_cast<size_t>(header_.data_start + entry.begin),
            "its data ends at byte {}, and the file has {}; it may be cut short", header_.data_start + entry.end,
            file_.size());
    }
  }

  std::span<const std::byte> file_;
  std::string_view path_;
  size_t at_ = 0;
  std::string subject_;  // what is being read, for messages
  std::unordered_set<std::string_view> names_;
  int64_t next_ = 0;  // where the next tensor begins
  GgufHeader header_;
};

}  // namespace

GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view path) {
  return GgufHeaderReader(file, path).read();
}

}  // namespace tutti::io
