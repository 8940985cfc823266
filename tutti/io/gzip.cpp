#include "tutti/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr int kGzipOnly = 15 + 16;              // zlib: largest window, gzip wrapper required
constexpr size_t kInputStep = size_t{1} << 30;  // zlib counts input in 32 bits
constexpr size_t kOutputStep = size_t{1} << 20;

// gzip itself accepts zero bytes behind the last member: tapes and block devices pad with them.
bool is_padding(std::span<const std::byte> rest) {
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

struct GzipReader::Inflater {
  z_stream stream{};
  std::vector<char> buffer = std::vector<char>(kOutputStep);
  Inflater() { TUTTI_CHECK_ENV(inflateInit2(&stream, kGzipOnly) == Z_OK, "zlib cannot start: {}", message()); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  const char* message() const { return stream.msg != nullptr ? stream.msg : "no reason given"; }
};

GzipReader::GzipReader(std::span<const std::byte> compressed, std::string name, int64_t limit_nbytes)
    : compressed_(compressed),
      name_(std::move(name)),
      limit_nbytes_(limit_nbytes),
      inflater_(std::make_unique<Inflater>()) {
  TUTTI_CHECK_ENV(is_gzip(compressed_), "'{}' is not gzip data: it begins with other bytes than 1f 8b", name_);
}

GzipReader::~GzipReader() = default;

bool GzipReader::read(std::string& text) {
  z_stream& stream = inflater_->stream;
  std::vector<char>& buffer = inflater_->buffer;
  while (!is_over_) {
    const size_t given = std::min(compressed_.size() - position_, kInputStep);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed_.data() + position_));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    position_ += given - stream.avail_in;
    const size_t made = buffer.size() - stream.avail_out;
    made_ += static_cast<int64_t>(made);
    TUTTI_CHECK_ENV(made_ <= limit_nbytes_,
                    "'{}' expands to more than {} bytes; uncompress it and cut it into smaller files", name_,
                    limit_nbytes_);
    TUTTI_CHECK_ENV(made_ <= kGunzipFreeNbytes || made_ / kGunzipMostRatio <= static_cast<int64_t>(position_),
                    "'{}' expands to more than {} times its size: {} bytes from the first {}, as no text does; "
                    "uncompress it if it is one all the same",
                    name_, kGunzipMostRatio, made_, position_);
    if (status == Z_STREAM_END) {
      const std::span<const std::byte> rest = compressed_.subspan(position_);
      is_over_ = is_padding(rest);
      TUTTI_CHECK_ENV(is_over_ || is_gzip(rest), "'{}' has {} bytes of something else behind its gzip data at byte {}",
                      name_, rest.size(), position_);
      inflateReset(&stream);
    } else {
      TUTTI_CHECK_ENV(status == Z_OK || status == Z_BUF_ERROR, "'{}' is damaged gzip data near byte {}: {}", name_,
                      position_, inflater_->message());
      TUTTI_CHECK_ENV(position_ < compressed_.size() || made > 0,
                      "'{}' is cut short: the gzip data does not end within its {} bytes; fetch the file again", name_,
                      compressed_.size());
    }
    text.append(buffer.data(), made);
    if (made > 0) return true;
  }
  return false;
}

std::string gunzip(std::span<const std::byte> compressed, std::string_view name, int64_t limit_nbytes) {
  GzipReader reader(compressed, std::string(name), limit_nbytes);
  std::string text;
  while (reader.read(text)) {
  }
  return text;
}

}  // namespace tutti
