#include "tutti/io/npy_header.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/io/file_nbytes.h"

namespace tutti::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kNpyAlignment = 64;

struct TypeCode {
  DType dtype;
  std::string_view code;  // behind the byte order
};
constexpr TypeCode kCodes[] = {{DType::f64, "f8"}, {DType::f32, "f4"}, {DType::f16, "f2"},
                               {DType::i64, "i8"}, {DType::i32, "i4"}, {DType::i16, "i2"},
                               {DType::i8, "i1"},  {DType::u8, "u1"},  {DType::boolean, "b1"}};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order and spacing, each key once.
class NpyReader {
 public:
  NpyReader(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {}

  NpyHeader read() {
    locate();
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!skip('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        read_descr(quoted());
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header_.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        read_shape();
        has_shape = true;
      } else {
        fail(fmt::format("its header has the key '{}' twice or needlessly", key));
      }
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    spaces();
    if (!text_.empty()) fail("its header goes on behind the closing brace");
    if (!has_descr || !has_order || !has_shape) fail("its header lacks descr, fortran_order or shape");
    check_length();
    return header_;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw EnvironmentError(fmt::format("'{}' is not an npy file that can be read: {}", name_, what));
  }

  void locate() {
    const std::string_view bytes(reinterpret_cast<const char*>(file_.data()), file_.size());
    if (!bytes.starts_with(kMagic) || bytes.size() < 10) fail("it does not begin with \\x93NUMPY and a version");
    const int version = static_cast<unsigned char>(bytes[6]);
    if (version < 1 || version > 3 || bytes[7] != 0) {
      fail(fmt::format("version {}.{} is unknown", version, static_cast<unsigned char>(bytes[7])));
    }
    const size_t length_nbytes = version == 1 ? 2 : 4;
    uint32_t length = 0;
    if (bytes.size() < 8 + length_nbytes) fail("it is cut short");
    std::memcpy(&length, bytes.data() + 8, length_nbytes);
    const size_t start = 8 + length_nbytes;
    if (length > bytes.size() - start)
      fail(fmt::format("its header claims {} bytes, the file has {}", length, bytes.size()));
    text_ = bytes.substr(start, length);
    header_.data_start = static_cast<int64_t>(start + length);
  }

  void spaces() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }

  bool skip(char c) {
    spaces();
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!skip(c)) fail(fmt::format("expected '{}' in its header before '{}'", c, text_.substr(0, 20)));
  }

  std::string_view quoted() {
    spaces();
    const char quote = text_.empty() ? '\0' : text_[0];
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      fail(fmt::format("expected a string in its header before '{}' (arrays of records are not supported)",
                       text_.substr(0, 20)));
    }
    const std::string_view inside = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return inside;
  }

  bool boolean() {
    spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    fail("fortran_order is neither True nor False");
  }

  void read_descr(std::string_view descr) {
    for (const TypeCode& row : kCodes) {
      if (descr.size() != 3 || descr.substr(1) != row.code) continue;
      const bool order_matters = itemsize(row.dtype) > 1;
      if (order_matters && descr[0] != '<' && descr[0] != '>' && descr[0] != '=') break;
      header_.dtype = row.dtype;
      header_.swapped = order_matters && descr[0] == '>';
      return;
    }
    fail(fmt::format("its type is '{}'; supported are f8 f4 f2 i8 i4 i2 i1 u1 b1", descr));
  }

  void read_shape() {
    expect('(');
    while (!skip(')')) {
      int64_t size = 0;
      spaces();
      const auto [stopped, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0)
        fail(fmt::format("its shape has a bad size before '{}'", text_.substr(0, 20)));
      text_.remove_prefix(static_cast<size_t>(stopped - text_.data()));
      if (header_.shape.ndim() == kMaxDims) fail(fmt::format("it has more than {} dimensions", kMaxDims));
      header_.shape.push_back(size);
      if (!skip(',')) {
        expect(')');
        break;
      }
    }
  }

  void check_length() const {
    const std::optional<int64_t> nbytes = file_nbytes(header_.shape, header_.dtype);
    const int64_t found = static_cast<int64_t>(file_.size()) - header_.data_start;
    if (nbytes != found) {
      fail(fmt::format("shape {} of {} needs {} bytes of data, the file has {}", header_.shape, name_of(header_.dtype),
                       nbytes ? std::to_string(*nbytes) : "too many", found));
    }
  }

  std::span<const std::byte> file_;
  std::string_view name_;
  std::string_view text_;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> file, std::string_view name) {
  return NpyReader(file, name).read();
}

std::string npy_header_bytes(DType dtype, const Extents& shape) {
  std::string_view code;
  for (const TypeCode& row : kCodes) {
    if (row.dtype == dtype) code = row.code;
  }
  TUTTI_CHECK(!code.empty(), "npy has no type for {}; cast the tensor to f32 first", name_of(dtype));
  // A Python tuple: (), (3,), (3, 4).
  const std::string sizes =
      fmt::format("{}{}", fmt::join(shape.begin(), shape.end(), ", "), shape.ndim() == 1 ? "," : "");
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 itemsize(dtype) > 1 ? '<' : '|', code, sizes);
  const size_t fixed = kMagic.size() + 4;
  const size_t total = (fixed + text.size() + 1 + kNpyAlignment - 1) / kNpyAlignment * kNpyAlignment;
  text.resize(total - fixed - 1, ' ');
  text += '\n';
  const uint16_t length = static_cast<uint16_t>(text.size());
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\0';
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + text;
}

}  // namespace tutti::io
