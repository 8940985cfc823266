#include "tutti/io/gguf_model_file.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/io/gguf.h"
#include "tutti/io/gguf_writer.h"
#include "tutti/tensor/tensor.h"

namespace tutti::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".gguf";

ModelTensor model_tensor(const GgufEntry& entry) {
  const std::optional<DType> dtype = row_of(entry.format).dtype;
  return {.name = entry.name,
          .sizes = entry.shape,
          .dtype = dtype.value_or(DType::f32),
          .blocks = dtype ? std::nullopt : std::optional(entry.format)};
}

class GgufReader final : public ModelFileReader {
 public:
  explicit GgufReader(const std::string& path) : file_(path) {
    for (const GgufEntry& entry : file_.entries()) {
      entries_.push_back(model_tensor(entry));
      entries_.back().bytes = file_.bytes(entry.name);
    }
  }
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return file_.metadata(); }
  Tensor tensor(std::string_view name) const override { return file_.tensor(name); }
  Tensor blocks(std::string_view name) const override { return file_.blocks(name); }

 private:
  GgufFile file_;
  std::vector<ModelTensor> entries_;
};

std::vector<GgufEntry> gguf_entries(const std::string& path, const std::vector<ModelTensor>& tensors) {
  std::vector<GgufEntry> entries;
  for (const ModelTensor& tensor : tensors) {
    const std::optional<BlockFormat> format = tensor.blocks ? tensor.blocks : block_format_of(tensor.dtype);
    TUTTI_CHECK(format.has_value(), "'{}': tensor '{}' is {}, which GGUF files do not hold; expected {}", path,
                tensor.name, name_of(tensor.dtype), "f32 f16 bf16 f64 i8 i16 i32 i64 or blocks");
    entries.push_back({.name = tensor.name, .format = *format, .shape = tensor.sizes});
  }
  return entries;
}

class GgufModelWriter final : public ModelFileWriter {
 public:
  GgufModelWriter(const std::string& path, std::vector<ModelTensor> entries, ModelMetadata metadata)
      : writer_(path, gguf_entries(path, entries), std::move(metadata)), entries_(std::move(entries)) {}
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  void write(std::string_view name, const Tensor& values) override { writer_.write(name, values); }
  void write_bytes(std::string_view name, std::span<const std::byte> bytes) override {
    writer_.write_bytes(name, bytes);
  }
  void commit() override { writer_.commit(); }

 private:
  GgufWriter writer_;
  std::vector<ModelTensor> entries_;
};

bool has_gguf_content(std::string_view head, size_t) {
  return head.starts_with(kGgufMagic) || head.starts_with("FUGG");
}

// The only file of a folder whose name ends as those of this format do.
std::optional<fs::path> find_gguf(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == kEnding) files.push_back(entry.path());
  }
  if (files.empty()) return std::nullopt;
  std::sort(files.begin(), files.end());
  TUTTI_CHECK(files.size() == 1, "the folder {} holds {} .gguf files; name one of them, as {}", folder.string(),
              files.size(), files.front().string());
  return files.front();
}

}  // namespace

const ModelFileFormat kGgufModelFile = {.name = "gguf",
                                        .ending = kEnding,
                                        .has_content = has_gguf_content,
                                        .find = find_gguf,
                                        .found_as = "one .gguf file",
                                        .open = [](const fs::path& path) -> std::unique_ptr<const ModelFileReader> {
                                          return std::make_unique<GgufReader>(path.string());
                                        },
                                        .create = [](const fs::path& path, std::vector<ModelTensor> entries,
                                                     ModelMetadata metadata) -> std::unique_ptr<ModelFileWriter> {
                                          return std::make_unique<GgufModelWriter>(path.string(), std::move(entries),
                                                                                   std::move(metadata));
                                        }};

}  // namespace tutti::io
