#include "tutti/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr int kGzipOnly = 15 + 16;            // zlib: largest window, gzip wrapper required
constexpr size_t kInputStep = size_t{1} << 30;  // zlib counts input in 32 bits
constexpr size_t kOutputStep = size_t{1} << 20;

struct Inflater {
  z_stream stream{};
  Inflater() { TUTTI_CHECK_ENV(inflateInit2(&stream, kGzipOnly) == Z_OK, "zlib cannot start: {}", message()); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  const char* message() const { return stream.msg != nullptr ? stream.msg : "no reason given"; }
};

// gzip itself accepts zero bytes behind the last member: tapes and block devices pad with them.
bool is_padding(std::span<const std::byte> rest) {
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::string gunzip(std::span<const std::byte> compressed, std::string_view name, int64_t limit_nbytes) {
  TUTTI_CHECK_ENV(is_gzip(compressed), "'{}' is not gzip data: it begins with other bytes than 1f 8b", name);
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::string text;
  std::vector<char> buffer(kOutputStep);
  size_t position = 0;
  for (;;) {
    const size_t given = std::min(compressed.size() - position, kInputStep);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data() + position));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    position += given - stream.avail_in;
    const size_t made = buffer.size() - stream.avail_out;
    TUTTI_CHECK_ENV(static_cast<int64_t>(text.size() + made) <= limit_nbytes,
                    "'{}' expands to more than {} bytes; uncompress it and cut it into smaller files", name,
                    limit_nbytes);
    text.append(buffer.data(), made);
    if (status == Z_STREAM_END) {
      const std::span<const std::byte> rest = compressed.subspan(position);
      if (is_padding(rest)) return text;
      TUTTI_CHECK_ENV(is_gzip(rest), "'{}' has {} bytes of something else behind its gzip data at byte {}", name,
                      rest.size(), position);
      inflateReset(&stream);
      continue;
    }
    TUTTI_CHECK_ENV(status == Z_OK || status == Z_BUF_ERROR, "'{}' is damaged gzip data near byte {}: {}", name,
                    position, inflater.message());
    TUTTI_CHECK_ENV(position < compressed.size() || made > 0,
                    "'{}' is cut short: the gzip data does not end within its {} bytes; fetch the file again", name,
                    compressed.size());
  }
}

}  // namespace tutti
