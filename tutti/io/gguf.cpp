#include "tutti/io/gguf.h"

#include "tutti/core/block_codec.h"
#include "tutti/core/error.h"
#include "tutti/io/mapped_tensor.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

GgufFile::GgufFile(const std::string& path)
    : file_(std::make_shared<const MappedFile>(path)),
      header_(std::make_shared<const io::GgufHeader>(io::parse_gguf_header(file_->bytes(), path))) {
  auto by_name = std::make_shared<std::map<std::string_view, const io::GgufEntry*>>();
  for (const io::GgufEntry& entry : header_->entries) by_name->emplace(entry.name, &entry);
  by_name_ = std::move(by_name);
}

const io::GgufEntry& GgufFile::entry(std::string_view name) const {
  const auto found = by_name_->find(name);
  if (found != by_name_->end()) return *found->second;
  std::vector<std::string> names;
  for (const io::GgufEntry& entry : entries()) names.push_back(entry.name);
  const std::string nearest = nearest_match(name, names);
  throw UsageError(fmt::format("'{}' has no tensor '{}' among its {}{}", path(), name, names.size(),
                               nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

std::span<const std::byte> GgufFile::bytes(std::string_view name) const {
  const io::GgufEntry& entry = this->entry(name);
  // The data of a file without elements may lie behind its end.
  if (entry.begin == entry.end) return {};
  return file_->bytes().subspan(static_cast<size_t>(header_->data_start + entry.begin),
                                static_cast<size_t>(entry.end - entry.begin));
}

Tensor GgufFile::tensor(std::string_view name) const {
  const io::GgufEntry& entry = this->entry(name);
  if (const auto dtype = row_of(entry.format).dtype) return io::mapped_tensor(file_, bytes(name), entry.shape, *dtype);
  TUTTI_CHECK(can_decode(entry.format),
              "'{}': tensor '{}' is {}, which is not decoded; convert the file to Q8_0 or a float type", path(), name,
              name_of(entry.format));
  const Tensor values = Tensor::empty(entry.shape, DType::f32);
  decode_blocks(entry.format, bytes(name), {values.data<float>(), static_cast<size_t>(values.numel())});
  forget_pages(bytes(name));
  return values;
}

Tensor GgufFile::blocks(std::string_view name) const {
  const io::GgufEntry& entry = this->entry(name);
  const BlockFormatRow& format = row_of(entry.format);
  if (format.dtype || entry.shape.ndim() < 2 || entry.shape.ndim() > 3) return {};
  Extents sizes = entry.shape;
  sizes.back() = sizes.back() / format.elements * format.nbytes;
  return io::mapped_tensor(file_, bytes(name), sizes, DType::u8);
}

}  // namespace tutti
