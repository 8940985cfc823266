#include "tutti/train/report/tensorboard.h"
#include "tutti/runtime/held_signal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/runtime/host.h"
#include "tutti/train/report/record_words.h"

namespace tutti::train {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

// Little-endian bytes of a number (x86 stores them so).
template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
std::string tag(uint32_t field, Wire wire) { return varint(field << 3 | wire); }
std::string text_field(uint32_t field, std::string_view text) {
  std::string bytes = tag(field, kLengthDelimited) + varint(text.size());
  return bytes.append(text);
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log =
// 7; } Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; } SessionLog {
// SessionStatus status = 1; }   SessionStatus { START = 1; }
std::string wall_time_field(double wall_time) { return tag(1, kFixed64) + bytes_of(wall_time); }

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string step_field(int64_t step) { return tag(2, kVarint) + varint(static_cast<uint64_t>(step)); }

constexpr std::string_view kEventFile = "events.out.tfevents.";

// The seconds in the name of a new file, which is behind the names of all files there, even if two starts fall into one
// second or the clock was set back.
int64_t next_seconds(const std::filesystem::path& folder) {
  auto seconds = static_cast<int64_t>(now_s());
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t other = 0;
    if (!name.starts_with(kEventFile)) continue;
    const auto parsed = std::from_chars(name.data() + kEventFile.size(), name.data() + name.size(), other);
    // Names have ten digits, so a larger number would not sort behind smaller ones.
    if (parsed.ec == std::errc() && other < 9'999'999'999) seconds = std::max(seconds, other + 1);
  }
  return seconds;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

std::string encode_scalars(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars) {
    summary += text_field(1, text_field(1, name) + tag(2, kFixed32) + bytes_of(value));
  }
  return wall_time_field(wall_time) + step_field(step) + text_field(5, summary);
}

std::string encode_file_version(double wall_time) {
  return wall_time_field(wall_time) + text_field(3, "brain.Event:2");
}

std::string encode_session_start(double wall_time, int64_t step) {
  return wall_time_field(wall_time) + step_field(step) + text_field(7, tag(1, kVarint) + varint(1));
}

std::string frame_record(std::string_view payload) {
  const std::string length = bytes_of(static_cast<uint64_t>(payload.size()));
  std::string record = length + bytes_of(masked_crc32c(length));
  record.append(payload);
  return record + bytes_of(masked_crc32c(payload));
}

Scalars scalars_of(const StepRecord& r) {
  Scalars scalars{{"loss", r.loss},
                  {"grad_norm", static_cast<float>(r.grad_norm)},
                  {"lr", static_cast<float>(r.lr)},
                  {fmt::format("throughput/{}", words_of(r.model).rate_key), static_cast<float>(r.items_per_s)},
                  {"throughput/tflops", static_cast<float>(r.tflops)},
                  {"time/step_ms", static_cast<float>(r.step_ms)},
                  {"time/data_ms", static_cast<float>(r.data_ms)},
                  {"time/comm_ms", static_cast<float>(r.comm_ms)},
                  {"memory/peak_bytes", static_cast<float>(r.memory_peak_bytes)}};
  if (r.mfu) scalars.emplace_back("throughput/mfu_percent", static_cast<float>(*r.mfu));
  for (const HeldOutMetric& metric : held_out_metrics()) {
    if (const auto& value = r.*metric.value) scalars.emplace_back(metric.tag, static_cast<float>(*value));
  }
  return scalars;
}

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder, int64_t resumed_step) {
  std::error_code ignored;  // the open below says what is wrong
  std::filesystem::create_directories(folder, ignored);
  path_ = folder / fmt::format("{}{:010}.{}.{}", kEventFile, next_seconds(folder), host_name(), getpid());
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  TUTTI_CHECK_ENV(fd_ >= 0, "cannot create {}: {}", path_.string(), detail::errno_text(errno));
  append(encode_file_version(now_s()));
  append(encode_session_start(now_s(), resumed_step + 1));
}

TensorboardWriter::~TensorboardWriter() { close(fd_); }

void TensorboardWriter::write(int64_t step, const Scalars& scalars) { append(encode_scalars(now_s(), step, scalars)); }

void TensorboardWriter::append(std::string_view payload) {
  const HeldSignal held(SIGXFSZ);
  const std::string record = frame_record(payload);
  TUTTI_CHECK_ENV(::write(fd_, record.data(), record.size()) == static_cast<ssize_t>(record.size()),
                  "cannot write to {}: {}", path_.string(), detail::errno_text(errno));
}

}  // namespace tutti::train
