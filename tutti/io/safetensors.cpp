#include "tutti/io/safetensors.h"

#include <algorithm>

#include "tutti/io/mapped_tensor.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(std::make_shared<const MappedFile>(path)),
      header_(std::make_shared<const io::SafetensorsHeader>(io::parse_safetensors_header(file_->bytes(), path))) {
  auto by_name = std::make_shared<std::unordered_map<std::string_view, const io::SafetensorsEntry*>>();
  for (const io::SafetensorsEntry& entry : header_->entries) by_name->emplace(entry.name, &entry);
  by_name_ = std::move(by_name);
}

bool SafetensorsFile::contains(std::string_view name) const { return by_name_->contains(name); }

const io::SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = by_name_->find(name);
  if (found != by_name_->end()) return *found->second;
  std::vector<std::string> names;
  for (const io::SafetensorsEntry& entry : entries()) names.push_back(entry.name);
  const std::string nearest = nearest_match(name, names);
  throw UsageError(fmt::format("'{}' has no tensor '{}' among its {}{}", path(), name, names.size(),
                               nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const io::SafetensorsEntry& entry = this->entry(name);
  return file_->bytes().subspan(static_cast<size_t>(header_->data_start + entry.begin),
                                static_cast<size_t>(entry.end - entry.begin));
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const io::SafetensorsEntry& entry = this->entry(name);
  const std::span<const std::byte> data = bytes(name);
  if (entry.dtype == DType::boolean) {
    const bool valid = std::all_of(data.begin(), data.end(), [](std::byte b) { return b <= std::byte{1}; });
    TUTTI_CHECK_ENV(valid, "'{}': tensor '{}' is BOOL and holds bytes other than 0 and 1", path(), name);
  }
  return io::mapped_tensor(file_, data, entry.shape, entry.dtype);
}

void write_safetensors(const std::string& path, std::span<const std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<io::SafetensorsEntry> entries;
  std::unordered_map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    TUTTI_CHECK(tensor.defined() && tensor.device().kind == DeviceKind::cpu,
                "write_safetensors '{}': tensor '{}' is {}, expected one on the cpu", path, name, describe(tensor));
    entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.extents()});
    by_name[name] = &tensor;
  }
  const io::SafetensorsHeader header = io::safetensors_layout(std::move(entries), metadata);
  const std::string header_bytes = io::safetensors_header_bytes(header);
  AtomicFile file(path);
  file.write(header_bytes);
  for (const io::SafetensorsEntry& entry : header.entries) {
    const Tensor dense = to_contiguous(*by_name.at(entry.name));
    file.write(dense.raw_data(), static_cast<size_t>(dense.nbytes()));
  }
  file.commit();
}

}  // namespace tutti
