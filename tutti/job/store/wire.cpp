#include "tutti/job/store/wire.h"

namespace tutti::comm {
namespace {

template <class T>
void append_number(std::string& text, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) text += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

template <class T>
T parse_number(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

WireHeader read_wire_header(std::string_view bytes) {
  return {.body_bytes = parse_number<uint32_t>(bytes),
          .version = static_cast<uint8_t>(bytes[4]),
          .code = static_cast<uint8_t>(bytes[5]),
          .reserved = parse_number<uint16_t>(bytes.substr(6))};
}

WireWriter::WireWriter(uint8_t code) : frame_(kWireHeaderBytes, '\0') {
  frame_[4] = static_cast<char>(kWireVersion);
  frame_[5] = static_cast<char>(code);
}

WireWriter& WireWriter::put_u8(uint8_t value) {
  append_number(frame_, value);
  return *this;
}

WireWriter& WireWriter::put_i64(int64_t value) {
  append_number(frame_, value);
  return *this;
}

WireWriter& WireWriter::put_bytes(std::string_view bytes) {
  TUTTI_CHECK(frame_.size() + bytes.size() <= kMaxWireBody, "store: one call moves more than {} bytes; split it",
              kMaxWireBody);
  append_number(frame_, static_cast<uint32_t>(bytes.size()));
  frame_ += bytes;
  return *this;
}

WireWriter& WireWriter::put_list(const std::vector<std::string>& items) {
  append_number(frame_, static_cast<uint32_t>(items.size()));
  for (const std::string& item : items) put_bytes(item);
  return *this;
}

std::string WireWriter::finish() {
  const size_t body = frame_.size() - kWireHeaderBytes;
  TUTTI_CHECK(body <= kMaxWireBody, "store: one call moves {} bytes, the limit is {}; split it", body, kMaxWireBody);
  std::string size;
  append_number(size, static_cast<uint32_t>(body));
  frame_.replace(0, size.size(), size);
  return std::move(frame_);
}

std::string_view WireReader::take(size_t count) {
  if (count > rest_.size()) {
    throw WireError(fmt::format("malformed frame: {} bytes are announced where {} are left", count, rest_.size()));
  }
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

uint8_t WireReader::read_u8() { return parse_number<uint8_t>(take(1)); }
uint32_t WireReader::read_u32() { return parse_number<uint32_t>(take(4)); }
int64_t WireReader::read_i64() { return parse_number<int64_t>(take(8)); }
std::string_view WireReader::read_bytes() { return take(read_u32()); }

std::vector<std::string> WireReader::read_list(size_t most) {
  const size_t count = read_u32();
  // An item has at least its own count.
  if (count > rest_.size() / 4) {
    throw WireError(fmt::format("malformed frame: a list of {} items in {} bytes", count, rest_.size()));
  }
  if (count > most)
    throw UsageError(
        fmt::format("store: one request has a list of {} items, the limit is {}; make several", count, most));
  std::vector<std::string> items;
  items.reserve(count);
  for (size_t i = 0; i < count; ++i) items.emplace_back(read_bytes());
  return items;
}

void WireReader::expect_end() const {
  if (!rest_.empty()) throw WireError(fmt::format("malformed frame: {} bytes too many", rest_.size()));
}

}  // namespace tutti::comm
