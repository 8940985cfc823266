// Writes GGUF files one tensor at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/gguf_header.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {

class Tensor;

// Writes the file atomically: readers see either the old file or the complete new one, even after a crash. What a
// tensor takes in memory is needed only while it is written. Used by one thread at a time.
class GgufWriter {
 public:
  // Writes the header: `entries` are names, formats and sizes of all tensors, in the order in which they will be
  // written; their places are set here. Errors of io::gguf_layout() and AtomicFile.
  GgufWriter(const std::string& path, std::vector<io::GgufEntry> entries, ModelMetadata metadata = {});

  const std::vector<io::GgufEntry>& entries() const { return header_.entries; }
  // Writes the next tensor, converted by all threads from its dtype to the format of its entry: a float to one that is
  // encoded (block_codec.h), an integer or f64 to its own. UsageError, naming file and tensor, when `name` is not the
  // next, and for other sizes, dtypes and formats.
  void write(std::string_view name, const Tensor& values);
  // Writes the next tensor, in any format, from its bytes.
  void write_bytes(std::string_view name, std::span<const std::byte> bytes);
  // Makes the file visible. UsageError when tensors are missing.
  void commit();

 private:
  const io::GgufEntry& begin(std::string_view name);
  void pad(const io::GgufEntry& entry);

  std::string path_;
  io::GgufHeader header_;
  AtomicFile file_;
  size_t next_ = 0;
};

}  // namespace tutti
