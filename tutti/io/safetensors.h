// Tensor files in the safetensors format.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/io/mapped_file.h"
#include "tutti/io/safetensors_header.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// An open file: a value type whose copies share the mapping. Immutable, so it may be used by any thread.
class SafetensorsFile {
 public:
  // Maps the file and checks its whole header (safetensors_header.h). EnvironmentError, naming the file and the fault,
  // when it cannot be read, is truncated, or is inconsistent; UsageError when the header is not valid JSON of the
  // expected form.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  // The entries in the order of their data.
  const std::vector<io::SafetensorsEntry>& entries() const { return header_->entries; }
  const std::map<std::string, std::string>& metadata() const { return header_->metadata; }
  bool contains(std::string_view name) const;
  // UsageError, suggesting the nearest name, when there is no such tensor.
  const io::SafetensorsEntry& entry(std::string_view name) const;

  // The tensor's bytes in the mapped file.
  std::span<const std::byte> bytes(std::string_view name) const;
  // The tensor as a read-only view of the file's pages, which stay mapped as long as a view exists. A tensor whose data
  // is not aligned to its item size (as in files by old writers) is a copy in new memory instead.
  Tensor tensor(std::string_view name) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::shared_ptr<const io::SafetensorsHeader> header_;
  std::shared_ptr<const std::unordered_map<std::string_view, const io::SafetensorsEntry*>> by_name_;
};

// Writes the file atomically: readers see either the old file or the complete new one, even after a crash. Tensors are
// ordered by descending item size, then by name, so every tensor is aligned and equal content gives equal bytes.
// UsageError for a repeated name, an undefined tensor or one that is not on the host; EnvironmentError when it cannot
// be written.
void write_safetensors(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tutti
