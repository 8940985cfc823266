// Tensors in files, in the safetensors format.
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

// An open file. A value; copies share the mapping. Immutable, so any thread may call.
class SafetensorsFile {
 public:
  // Maps the file and checks its whole header (safetensors_header.h). EnvironmentError naming the file and what is wrong
  // when it cannot be read, is cut short, or is inconsistent; UsageError where its header is none.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  // In the order of their data.
  const std::vector<io::SafetensorsEntry>& entries() const { return header_->entries; }
  const std::map<std::string, std::string>& metadata() const { return header_->metadata; }
  bool contains(std::string_view name) const;
  // UsageError naming the nearest name when there is none such.
  const io::SafetensorsEntry& entry(std::string_view name) const;

  // The tensor as a read-only view of the file's pages, which stay mapped as long as a view lives. A tensor whose data
  // does not stand at a multiple of its item size (old writers did not align) is a copy in fresh memory instead.
  Tensor tensor(std::string_view name) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::shared_ptr<const io::SafetensorsHeader> header_;
  std::shared_ptr<const std::unordered_map<std::string_view, const io::SafetensorsEntry*>> by_name_;
};

// Writes the file atomically: a reader, and a crash, sees the old file or the whole new one. Data is laid out by item size
// descending, then by name, so every tensor is aligned and equal content gives equal bytes.
// UsageError for a repeated name, an undefined tensor or one that is not on the host; EnvironmentError when it cannot be
// written.
void write_safetensors(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tutti
