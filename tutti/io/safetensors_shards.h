// A set of tensors in one safetensors file, or in several beside an index: "model.safetensors", or
// "model.safetensors.index.json" with the files that it names, as published models have them.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/io/safetensors.h"

namespace tutti {

// Open files: a value type whose copies share the mappings. Immutable, so it may be used by any thread.
class SafetensorsShards {
 public:
  // Maps the file `path`, or where there is none those of `path`.index.json. A path that ends with .index.json is that
  // of an index. Errors of SafetensorsFile. Also UsageError, naming the index, when it is no JSON of the expected form
  // or names a file in another folder; EnvironmentError, naming files and tensors, when what the files hold is not what
  // it says.
  explicit SafetensorsShards(const std::filesystem::path& path);

  // The file, or the index.
  const std::string& path() const { return path_; }
  // How many files there are.
  size_t files() const { return files_.size(); }
  // In the order of the files, and in each of the data.
  const std::vector<io::SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return files_.front().metadata(); }
  bool contains(std::string_view name) const;
  // See SafetensorsFile. UsageError, suggesting the nearest name, when there is no such tensor.
  const io::SafetensorsEntry& entry(std::string_view name) const { return file_with(name).entry(name); }
  std::span<const std::byte> bytes(std::string_view name) const { return file_with(name).bytes(name); }
  Tensor tensor(std::string_view name) const { return file_with(name).tensor(name); }

 private:
  const SafetensorsFile& file_with(std::string_view name) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<io::SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> file_of_;
};

// The file that stands for the set: `path`, or its index where there is no such file; one of them need not exist.
std::filesystem::path safetensors_place(const std::filesystem::path& path);

// Writes the tensors to `count` files beside an index, "model-00001-of-00003.safetensors" and so on for the path
// "model.safetensors"; for 1 to the path itself. Each has consecutive tensors, by name, of about equally many bytes.
// Every file is written atomically and synced, the index last. UsageError for a count that is not 1 to the number of
// tensors.
void write_safetensors_shards(const std::filesystem::path& path,
                              std::span<const std::pair<std::string, Tensor>> tensors,
                              const std::map<std::string, std::string>& metadata, int64_t count);

}  // namespace tutti
