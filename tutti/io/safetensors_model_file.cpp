#include "tutti/io/safetensors_model_file.h"

#include <cstring>

#include "tutti/core/error.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileInFolder = "model.safetensors";

class SafetensorsReader final : public ModelFileReader {
 public:
  explicit SafetensorsReader(const fs::path& path) : files_(path), metadata_(files_.path()) {
    for (const SafetensorsEntry& entry : files_.entries())
      entries_.push_back(
          {.name = entry.name, .sizes = entry.shape, .dtype = entry.dtype, .bytes = files_.bytes(entry.name)});
    for (const auto& [key, value] : files_.metadata()) metadata_.set(key, value);
  }
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return metadata_; }
  Tensor tensor(std::string_view name) const override { return files_.tensor(name); }

 private:
  SafetensorsShards files_;
  ModelMetadata metadata_;
  std::vector<ModelTensor> entries_;
};

SafetensorsHeader header_of(const std::string& path, const std::vector<ModelTensor>& tensors,
                            const ModelMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const ModelTensor& tensor : tensors) {
    TUTTI_CHECK(!tensor.blocks,
                "'{}': tensor '{}' is {}, which safetensors files do not hold; decode it, or write GGUF", path,
                tensor.name, tensor.type_name());
    entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.sizes});
  }
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : metadata.entries()) {
    TUTTI_CHECK(value.type() == MetadataType::text, "'{}': key '{}' is {}; safetensors files hold only texts", path,
                key, metadata.at(key).shown());
    texts.emplace(key, value.texts()[0]);
  }
  return safetensors_layout(std::move(entries), std::move(texts));
}

class SafetensorsWriter final : public ModelFileWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<ModelTensor>& tensors, const ModelMetadata& metadata)
      : path_(path), header_(header_of(path, tensors, metadata)), file_(path) {
    file_.write(safetensors_header_bytes(header_));
    for (const SafetensorsEntry& entry : header_.entries)
      entries_.push_back({.name = entry.name, .sizes = entry.shape, .dtype = entry.dtype});
  }
  const std::vector<ModelTensor>& entries() const override { return entries_; }

  void write(std::string_view name, const Tensor& values) override {
    const ModelTensor& entry = next_of(name);
    TUTTI_CHECK(values.defined() && values.device().kind == DeviceKind::cpu && values.extents() == entry.sizes,
                "'{}': tensor '{}' is {}; expected {} on the cpu", path_, name, describe(values), entry.sizes);
    const bool is_same = values.dtype() == entry.dtype;
    TUTTI_CHECK(is_same || (is_floating(values.dtype()) && is_floating(entry.dtype)),
                "'{}': tensor '{}' is {}, which is not converted to {}", path_, name, describe(values),
                name_of(entry.dtype));
    Tensor dense = to_contiguous(values);
    if (!is_same) dense = converted(dense, entry.dtype);
    file_.write(dense.raw_data(), static_cast<size_t>(dense.nbytes()));
    ++next_;
  }

  void write_bytes(std::string_view name, std::span<const std::byte> bytes) override {
    const ModelTensor& entry = next_of(name);
    const int64_t nbytes = numel_of(entry.sizes) * itemsize(entry.dtype);
    TUTTI_CHECK(std::ssize(bytes) == nbytes, "'{}': tensor '{}' {} takes {} bytes, {} are given", path_, name,
                describe(entry), nbytes, bytes.size());
    file_.write(bytes.data(), bytes.size());
    ++next_;
  }

  void commit() override {
    TUTTI_CHECK(next_ == entries_.size(), "'{}': {} of {} tensors are written, '{}' is missing", path_, next_,
                entries_.size(), entries_[next_].name);
    file_.commit();
  }

 private:
  const ModelTensor& next_of(std::string_view name) const {
    TUTTI_CHECK(next_ < entries_.size(), "'{}': all {} tensors are written; '{}' is not among them", path_,
                entries_.size(), name);
    TUTTI_CHECK(entries_[next_].name == name,
                "'{}': tensor {} of {} is '{}', not '{}'; write them in the order of entries()", path_, next_ + 1,
                entries_.size(), entries_[next_].name, name);
    return entries_[next_];
  }

  static Tensor converted(const Tensor& dense, DType dtype) {
    const Tensor result = Tensor::empty(dense.extents(), dtype);
    const auto* from = static_cast<const std::byte*>(dense.raw_data());
    auto* to = static_cast<std::byte*>(result.raw_data());
    for (int64_t i = 0; i < dense.numel(); ++i)
      store_from_double(to + i * itemsize(dtype), dtype,
                        load_as_double(from + i * itemsize(dense.dtype()), dense.dtype()));
    return result;
  }

  std::string path_;
  SafetensorsHeader header_;
  AtomicFile file_;
  std::vector<ModelTensor> entries_;
  size_t next_ = 0;
};

// A file is a length and JSON, an index is JSON.
bool has_safetensors_content(std::string_view head, size_t nbytes) {
  uint64_t length = 0;
  if (head.size() > sizeof(length) && head[sizeof(length)] == '{') {
    std::memcpy(&length, head.data(), sizeof(length));
    if (length <= nbytes - sizeof(length)) return true;
  }
  const size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '{';
}

std::optional<fs::path> find_safetensors(const fs::path& path) {
  std::error_code none;
  const fs::path file = safetensors_place(fs::is_directory(path, none) ? path / kFileInFolder : path);
  return fs::exists(file, none) ? std::optional(file) : std::nullopt;
}

}  // namespace

const ModelFileFormat kSafetensorsModelFile = {
    .name = "safetensors",
    .ending = ".safetensors",
    .has_content = has_safetensors_content,
    .find = find_safetensors,
    .found_as = "model.safetensors, model.safetensors.index.json",
    .open = [](const fs::path& path) -> std::unique_ptr<const ModelFileReader> {
      return std::make_unique<SafetensorsReader>(path);
    },
    .create = [](const fs::path& path, std::vector<ModelTensor> entries,
                 ModelMetadata metadata) -> std::unique_ptr<ModelFileWriter> {
      return std::make_unique<SafetensorsWriter>(path.string(), entries, metadata);
    }};

}  // namespace tutti::io
