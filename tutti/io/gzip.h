// Decompression of gzip (RFC 1952), including dictzip, which is gzip with an index for random access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The largest size that one compressed file may expand to; it protects against small files that expand to enormous
// ones.
inline constexpr int64_t kGunzipLimitNbytes = int64_t{1} << 34;
// Data that expands to more than kGunzipFreeNbytes may be at most kGunzipMostRatio times as large as was read of
// the file. Prose shrinks to a third, repetitive logs to a hundredth; the format itself allows 1032.
inline constexpr int64_t kGunzipFreeNbytes = int64_t{64} << 20;
inline constexpr int64_t kGunzipMostRatio = 256;

// Whether `bytes` begin with the gzip magic number.
bool is_gzip(std::span<const std::byte> bytes);

// Expands piece by piece, so that the memory it takes does not depend on the size of the contents. The bytes outlive
// it. Belongs to one thread.
class GzipReader {
 public:
  // `name` is the file name for messages. EnvironmentError when the data is not gzip.
  GzipReader(std::span<const std::byte> compressed, std::string name, int64_t limit_nbytes = kGunzipLimitNbytes);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Appends at most 1 MiB of the contents of all members, whose checksums are verified as they end. Returns false,
  // without appending, when there is no more. EnvironmentError when the data is damaged or truncated, is followed by
  // other data, or expands beyond the limits.
  bool read(std::string& text);

 private:
  struct Inflater;
  const std::span<const std::byte> compressed_;
  const std::string name_;
  const int64_t limit_nbytes_;
  const std::unique_ptr<Inflater> inflater_;
  size_t position_ = 0;
  int64_t made_ = 0;
  bool is_over_ = false;
};

// The contents as a whole. Errors as GzipReader.
std::string gunzip(std::span<const std::byte> compressed, std::string_view name,
                   int64_t limit_nbytes = kGunzipLimitNbytes);

}  // namespace tutti
