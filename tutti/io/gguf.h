// Tensor files in the GGUF format.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/io/gguf_header.h"
#include "tutti/io/mapped_file.h"

namespace tutti {

class Tensor;

// An open file: a value type whose copies share the mapping. Immutable, so it may be used by any thread.
class GgufFile {
 public:
  // Maps the file and checks its whole header. Errors of MappedFile and io::parse_gguf_header().
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  uint32_t version() const { return header_->version; }
  // The entries in the order of the file.
  const std::vector<io::GgufEntry>& entries() const { return header_->entries; }
  const ModelMetadata& metadata() const { return header_->metadata; }
  bool contains(std::string_view name) const { return by_name_->contains(name); }
  // UsageError, suggesting the nearest name, when there is no such tensor.
  const io::GgufEntry& entry(std::string_view name) const;

  // The tensor's blocks, or numbers, in the mapped file.
  std::span<const std::byte> bytes(std::string_view name) const;
  // The tensor's numbers: a read-only view of the file's pages, which stay mapped as long as a view exists, where the
  // file holds plain numbers; blocks are decoded to f32 in new memory. UsageError, naming file, tensor and format, for
  // blocks that are not decoded (core/block_codec.h).
  Tensor tensor(std::string_view name) const;
  // The blocks of a matrix as u8 [rows, bytes of a row], and of a tensor of several as u8 [matrices, rows, bytes of a
  // row]: a read-only view of the file's pages, as above. Undefined for plain numbers and for other dims.
  Tensor blocks(std::string_view name) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::shared_ptr<const io::GgufHeader> header_;
  std::shared_ptr<const std::map<std::string_view, const io::GgufEntry*>> by_name_;
};

}  // namespace tutti
