// A TensorBoard event file with scalars.
//
// Framing (TFRecord): length (u64), masked CRC of the length, payload, masked CRC of the payload, all little endian;
// the payload is an Event message in protocol buffer encoding. Source: tensorflow/core/lib/io/record_writer.h and
// tensorflow/core/util/event.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/train/report/metrics.h"

namespace tutti::train {

// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);
// The masked CRC of event files: the CRC rotated right by 15 bits, plus a constant.
uint32_t masked_crc32c(std::string_view bytes);

using Scalars = std::vector<std::pair<std::string, float>>;

// The payload of one event. `wall_time` is in seconds since 1970.
std::string encode_scalars(double wall_time, int64_t step, const Scalars& scalars);
std::string encode_file_version(double wall_time);
// SessionLog START: readers drop what earlier files hold of `step` and later ones.
std::string encode_session_start(double wall_time, int64_t step);
// The payload with its framing, as written to the file.
std::string frame_record(std::string_view payload);

// The scalars of a step that are plotted.
Scalars scalars_of(const StepRecord& record);

// Used by one thread of rank 0. When write() returns, the events have been written to the operating system.
class TensorboardWriter {
 public:
  // Creates a file "events.out.tfevents.<seconds>.<host>.<pid>" in `folder`, which is created if necessary. A resumed
  // run has one file per start. TensorBoard joins them in the order of their names, so the seconds are more than those
  // of every file that is there. The file says that the steps after `resumed_step` begin here, so those that an
  // interrupted start wrote after its checkpoint count once.
  TensorboardWriter(const std::filesystem::path& folder, int64_t resumed_step);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  void write(int64_t step, const Scalars& scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(std::string_view payload);
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace tutti::train
