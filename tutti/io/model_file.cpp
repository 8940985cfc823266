#include "tutti/io/model_file.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/model_file_format.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownHead = 8;  // of unknown content

// The file that stands for the model at `path`.
fs::path file_at(const fs::path& path) {
  std::error_code none;  // opening the file says why it cannot be
  const bool is_folder = fs::is_directory(path, none);
  if (!is_folder && fs::exists(path, none)) return path;
  std::string known;
  for (const io::ModelFileFormat* format : io::model_file_formats()) {
    if (const auto found = format->find(path)) return *found;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format->found_as);
  }
  TUTTI_CHECK(!is_folder, "the folder {} holds no model; expected one of: {}", path.string(), known);
  return path;
}

const io::ModelFileFormat& format_of(const fs::path& path) {
  const MappedFile file(path.string());
  const std::string_view head = file.text().substr(0, io::kModelFileHead);
  for (const io::ModelFileFormat* format : io::model_file_formats()) {
    if (format->has_content(head, file.nbytes())) return *format;
  }
  // A damaged file is explained by the reader that its name asks for.
  std::string known;
  for (const io::ModelFileFormat* format : io::model_file_formats()) {
    if (path.string().ends_with(format->ending)) return *format;
    known += fmt::format("{}{}", known.empty() ? "" : " or ", format->name);
  }
  throw UsageError(fmt::format("'{}' is no model file: it has {} bytes and begins with {}; expected the content of {}",
                               path.string(), file.nbytes(), json_quoted(head.substr(0, kShownHead)), known));
}

}  // namespace

std::string describe(const ModelTensor& tensor) { return fmt::format("{} {}", tensor.sizes, tensor.type_name()); }

bool holds_model(const fs::path& path) {
  std::error_code none;
  if (fs::is_regular_file(path, none)) return true;
  const auto formats = io::model_file_formats();
  return std::any_of(formats.begin(), formats.end(),
                     [&](const io::ModelFileFormat* format) { return format->find(path).has_value(); });
}

ModelFile::ModelFile(const fs::path& path) {
  const fs::path file = file_at(path);
  const io::ModelFileFormat& format = format_of(file);
  *this = ModelFile(file.string(), format.name, format.open(file));
}

ModelFile::ModelFile(std::string path, std::string_view format, std::unique_ptr<const ModelFileReader> reader) {
  auto contents = std::make_shared<Contents>();
  contents->path = std::move(path);
  contents->format = format;
  contents->reader = std::move(reader);
  const std::vector<ModelTensor>& entries = contents->reader->entries();
  for (size_t i = 0; i < entries.size(); ++i) contents->by_name.emplace(entries[i].name, i);
  contents_ = std::move(contents);
}

const ModelTensor& ModelFile::entry(std::string_view name) const& {
  const auto found = contents_->by_name.find(name);
  if (found != contents_->by_name.end()) return entries()[found->second];
  std::vector<std::string> names;
  for (const ModelTensor& entry : entries()) names.push_back(entry.name);
  const std::string nearest = nearest_match(name, names);
  throw UsageError(fmt::format("'{}' has no tensor '{}' among its {}{}", path(), name, names.size(),
                               nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

Tensor ModelFile::tensor(std::string_view name) const { return contents_->reader->tensor(entry(name).name); }
Tensor ModelFile::blocks(std::string_view name) const { return contents_->reader->blocks(entry(name).name); }
Tensor ModelFileReader::blocks(std::string_view) const { return {}; }

std::unique_ptr<ModelFileWriter> create_model_file(const fs::path& path, std::string_view format,
                                                   std::vector<ModelTensor> entries, ModelMetadata metadata) {
  std::vector<std::string> names;
  for (const io::ModelFileFormat* row : io::model_file_formats()) {
    if (row->name == format) return row->create(path, std::move(entries), std::move(metadata));
    names.emplace_back(row->name);
  }
  throw UsageError(unknown_name_message("format of model files", format, names));
}

std::string_view model_format_of_name(const fs::path& path) {
  std::string known;
  for (const io::ModelFileFormat* row : io::model_file_formats()) {
    if (path.string().ends_with(row->ending)) return row->name;
    known += fmt::format("{}{}", known.empty() ? "" : " or ", row->ending);
  }
  throw UsageError(
      fmt::format("'{}' names no format of model files; expected a name that ends with {}", path.string(), known));
}

}  // namespace tutti
