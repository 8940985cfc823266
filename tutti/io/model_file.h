// The tensors of a published model, whatever the format of its files.
//
// A format is a row of model_file_formats.cpp and a pair of files that makes it; nothing else names one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/block_codec.h"
#include "tutti/core/block_format.h"
#include "tutti/core/shape.h"
#include "tutti/io/model_metadata.h"

namespace tutti {

class Tensor;

struct ModelTensor {
  std::string name;
  Extents sizes;                                     // row-major
  DType dtype = DType::f32;                          // of ModelFile::tensor(): f32 for blocks
  std::optional<BlockFormat> blocks = std::nullopt;  // of a tensor that is stored as blocks
  // Numbers or blocks in the mapped file, which every ModelFile keeps mapped. Empty where nothing is read.
  std::span<const std::byte> bytes = {};

  bool is_decoded() const { return !blocks || can_decode(*blocks); }  // whether ModelFile::tensor() gives its numbers
  std::string_view type_name() const { return blocks ? name_of(*blocks) : name_of(dtype); }  // "bf16", "Q4_K"
};
// "[2, 256] Q4_K", for messages.
std::string describe(const ModelTensor& tensor);

// What a format reads; its objects are immutable, so any thread may call them.
class ModelFileReader {
 public:
  virtual ~ModelFileReader() = default;
  virtual const std::vector<ModelTensor>& entries() const = 0;  // in the order of the files
  virtual const ModelMetadata& metadata() const = 0;
  virtual Tensor tensor(std::string_view name) const = 0;  // `name` is that of an entry
  // As ModelFile::blocks().
  virtual Tensor blocks(std::string_view name) const;
};

// An open model: a value type whose copies share the mappings. Immutable, so it may be used by any thread.
class ModelFile {
 public:
  // Opens a .safetensors file, an index with its files, a .gguf file, or a folder with one of them. A file's content
  // decides which format it has, not its name. Errors of the format's reader; UsageError when no format knows the
  // content, and for a folder without a model.
  explicit ModelFile(const std::filesystem::path& path);
  // What `reader` reads, as the contents of `path`.
  ModelFile(std::string path, std::string_view format, std::unique_ptr<const ModelFileReader> reader);

  const std::string& path() const { return contents_->path; }
  // The name of the format, which says what the keys of metadata() mean: "safetensors", "gguf".
  std::string_view format() const { return contents_->format; }
  // These refer to what the open model holds, so they are not asked of a temporary one.
  const std::vector<ModelTensor>& entries() const& { return contents_->reader->entries(); }
  const std::vector<ModelTensor>& entries() const&& = delete;
  const ModelMetadata& metadata() const& { return contents_->reader->metadata(); }
  const ModelMetadata& metadata() const&& = delete;
  bool contains(std::string_view name) const { return contents_->by_name.find(name) != contents_->by_name.end(); }
  // UsageError, suggesting the nearest name, when there is no such tensor.
  const ModelTensor& entry(std::string_view name) const&;
  const ModelTensor& entry(std::string_view name) const&& = delete;
  // The tensor's numbers: a read-only view of the file's pages where the file holds plain numbers, f32 in new memory
  // where it holds blocks. UsageError for a name that is not there and blocks that are not decoded.
  Tensor tensor(std::string_view name) const;
  // The blocks of a matrix as u8 [rows, bytes of a row], and of a tensor of several as u8 [matrices, rows, bytes of a
  // row]: a read-only view of the file's pages, or in new memory where the file holds the rows in another order.
  // Undefined for other tensors, and where rows of the file are not rows of the tensor. UsageError for a name that is
  // not there.
  Tensor blocks(std::string_view name) const;

 private:
  struct Contents {
    std::string path;
    std::string_view format;
    std::unique_ptr<const ModelFileReader> reader;
    std::map<std::string_view, size_t> by_name;
  };
  std::shared_ptr<const Contents> contents_;
};

// Whether `path` is a file, or a folder in which ModelFile finds one; the content is not looked at.
bool holds_model(const std::filesystem::path& path);

// Writes a model, one tensor at a time, atomically: readers see the old file or the complete new one. Used by one
// thread at a time.
class ModelFileWriter {
 public:
  virtual ~ModelFileWriter() = default;
  // All tensors in the order in which they must be written, which the format chooses.
  virtual const std::vector<ModelTensor>& entries() const = 0;
  // Writes the next tensor, converted from its dtype to that of its entry. UsageError, naming file and tensor, when
  // `name` is not the next, and for other sizes and for conversions that the format does not make.
  virtual void write(std::string_view name, const Tensor& values) = 0;
  // Writes the next tensor from the bytes that the file will hold.
  virtual void write_bytes(std::string_view name, std::span<const std::byte> bytes) = 0;
  // Makes the file visible. UsageError when tensors are missing.
  virtual void commit() = 0;
};

// Begins a file in the format `format` ("safetensors", "gguf"), with all of its tensors and metadata. UsageError for an
// unknown format, and for names, dtypes, blocks, sizes and metadata that the format does not hold.
std::unique_ptr<ModelFileWriter> create_model_file(const std::filesystem::path& path, std::string_view format,
                                                   std::vector<ModelTensor> entries, ModelMetadata metadata = {});
// The format that a file name ends with. UsageError, listing the known ends, for others.
std::string_view model_format_of_name(const std::filesystem::path& path);

}  // namespace tutti
