#include "tutti/io/safetensors_shards.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestIndex = size_t{1} << 28;
constexpr int64_t kMostFiles = 99'999;

constexpr const char* kIndex = ".index.json";

fs::path index_of(const fs::path& path) { return path.string() + kIndex; }
bool is_index(const fs::path& path) { return path.string().ends_with(kIndex); }

std::string file_name(const fs::path& path, int64_t i, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}{}", path.stem().string(), i + 1, count, path.extension().string());
}

}  // namespace

fs::path safetensors_place(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none) || !fs::exists(index_of(path), none) ? path : index_of(path);
}

SafetensorsShards::SafetensorsShards(const fs::path& path) {
  const fs::path index = safetensors_place(path);
  path_ = index.string();
  if (!is_index(index)) {
    files_.emplace_back(path_);
    entries_ = files_[0].entries();
    for (const io::SafetensorsEntry& entry : entries_) file_of_.emplace(entry.name, 0);
    return;
  }
  const JsonDocument document(read_regular_file(index.string(), kLargestIndex), {.name = index.string()});
  std::map<std::string, size_t> opened;
  for (const auto& [name, file] : document.top().at("weight_map")) {
    const std::string file_name = file.string();
    // The system ends a name at a zero byte, so what follows it would hide which file is opened.
    const bool is_name = !file_name.empty() && fs::path(file_name).filename() == file_name && file_name != "." &&
                         file_name != ".." && file_name.find('\0') == std::string::npos;
    if (!is_name) file.fail("expected the name of a file in the folder of the index, found {}", json_quoted(file_name));
    const auto [at, is_new] = opened.emplace(file_name, files_.size());
    if (is_new) files_.emplace_back((index.parent_path() / file_name).string());
    TUTTI_CHECK_ENV(
        files_[at->second].contains(name),
        "{} says that the tensor '{}' is in {}, which does not hold it; put back the files that were written together",
        index.string(), name, file_name);
    file_of_.emplace(name, at->second);
  }
  TUTTI_CHECK(!files_.empty(), "{} names no tensor", index.string());
  for (size_t f = 0; f < files_.size(); ++f) {
    for (const io::SafetensorsEntry& entry : files_[f].entries()) {
      const auto known = file_of_.find(entry.name);
      TUTTI_CHECK_ENV(
          known != file_of_.end() && known->second == f,
          "{} holds the tensor '{}', which {} does not name there; put back the files that were written together",
          files_[f].path(), entry.name, index.string());
      entries_.push_back(entry);
    }
  }
}

bool SafetensorsShards::contains(std::string_view name) const { return file_of_.find(name) != file_of_.end(); }

const SafetensorsFile& SafetensorsShards::file_with(std::string_view name) const {
  const auto found = file_of_.find(name);
  if (found != file_of_.end()) return files_[found->second];
  std::vector<std::string> names;
  for (const auto& [known, file] : file_of_) names.push_back(known);
  const std::string nearest = nearest_match(name, names);
  throw UsageError(fmt::format("'{}' has no tensor '{}' among its {}{}", path_, name, names.size(),
                               nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

void write_safetensors_shards(const fs::path& path, std::span<const std::pair<std::string, Tensor>> tensors,
                              const std::map<std::string, std::string>& metadata, int64_t count) {
  if (count == 1) return write_safetensors(path.string(), tensors, metadata);
  TUTTI_CHECK(count >= 1 && count <= std::min(std::ssize(tensors), kMostFiles),
              "{} files for the {} tensors of {}; expected 1 to {}", count, tensors.size(), path.string(),
              std::clamp<int64_t>(std::ssize(tensors), 1, kMostFiles));
  std::vector<std::pair<std::string, Tensor>> sorted(tensors.begin(), tensors.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t total = 0;
  for (const auto& [name, tensor] : sorted) total += tensor.nbytes();
  std::string map;
  size_t next = 0;
  int64_t written = 0;
  for (int64_t f = 0; f < count; ++f) {
    // A file ends where its share of the bytes does, and leaves a tensor for each of those that follow.
    const size_t begin = next, limit = sorted.size() - static_cast<size_t>(count - f - 1);
    while (next < limit &&
           (next == begin || f + 1 == count || written + sorted[next].second.nbytes() / 2 <= total / count * (f + 1)))
      written += sorted[next++].second.nbytes();
    const std::string name = file_name(path, f, count);
    write_safetensors((path.parent_path() / name).string(), std::span(sorted).subspan(begin, next - begin), metadata);
    for (size_t t = begin; t < next; ++t)
      map += fmt::format("{}\n    {}: {}", t == 0 ? "" : ",", json_quoted(sorted[t].first), json_quoted(name));
  }
  write_file_atomically(
      index_of(path).string(),
      fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{{}\n  }}\n}}\n", total,
                  map));
}

}  // namespace tutti
