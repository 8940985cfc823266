#include "tutti/io/binary_data.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::io {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view magic;
  const char* kind;
  size_t at = 0;
};

constexpr Format kFormats[] = {
    {"\xfd"
     "7zXZ\0"sv,
     "xz data; uncompress it first: xz -d"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data; uncompress it first: zstd -d"},
    {"BZh"sv, "bzip2 data; uncompress it first: bzip2 -d"},
    {"\x04\x22\x4d\x18"sv, "lz4 data; uncompress it first: lz4 -d"},
    {"\x1f\x8b"sv, "gzip data within gzip data; uncompress it first: gzip -d"},
    {"PK\x03\x04"sv, "a zip archive; unpack it first"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive; unpack it first"},
    {"ustar"sv, "a tar archive; unpack it first", 257},
    {"PAR1"sv, "a Parquet table; export its text to .jsonl or plain files"},
    {"ARROW1"sv, "an Arrow table; export its text to .jsonl or plain files"},
    {"Obj\x01"sv, "Avro data; export its text to .jsonl or plain files"},
    {"SQLite format 3\0"sv, "an SQLite database; export its text to .jsonl or plain files"},
    {"\x89HDF\r\n"sv, "an HDF5 file; export its text to .jsonl or plain files"},
    {"\x93NUMPY"sv, "a NumPy array; export its text to .jsonl or plain files"},
    {"%PDF-"sv, "a PDF document; extract its text first"},
    {"\x89PNG\r\n"sv, "a picture; leave it out"},
    {"\xff\xd8\xff"sv, "a picture; leave it out"},
    {"GIF8"sv, "a picture; leave it out"},
    {"\x7f"
     "ELF"sv,
     "a program; leave it out"},
    {"\xff\xfe"sv, "UTF-16 text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff"sv, "UTF-16 text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8"},
};

constexpr int64_t kFewOdd = 8;  // that a short text may hold

// Text has white space, backspaces of terminals and escapes of their colours.
bool is_odd(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == 0x7f || (byte < 0x20 && "\t\n\v\f\r\b\x1b"sv.find(c) == std::string_view::npos);
}

}  // namespace

std::string binary_kind_of(std::string_view head) {
  head = head.substr(0, kBinaryHeadNbytes);
  for (const Format& format : kFormats) {
    if (head.size() > format.at && head.substr(format.at).starts_with(format.magic)) return format.kind;
  }
  if (const size_t zero = head.find('\0'); zero != std::string_view::npos)
    return fmt::format("no text: byte {} is zero; leave it out, or convert it to text", zero);
  const auto odd = std::ranges::count_if(head, is_odd);
  if (odd > kFewOdd && static_cast<size_t>(odd) * 50 > head.size())
    return fmt::format("no text: {} of its first {} bytes are control characters; leave it out, or convert it to text",
                       odd, head.size());
  return "";
}

}  // namespace tutti::io
