#include "tutti/io/text_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "tutti/core/error.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

void append_folder(const fs::path& folder, std::vector<std::string>& files) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code vanished;
    if (entry->is_regular_file(vanished)) found.push_back(entry->path().string());
  }
  TUTTI_CHECK_ENV(!error, "cannot read the data folder '{}': {}", folder.string(), error.message());
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

// "; did you mean 'x'?" when the folder the path points into has an entry of nearly that name.
std::string hint_for(const fs::path& missing) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = missing.has_parent_path() ? missing.parent_path() : fs::path(".");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string nearest = nearest_match(missing.filename().string(), names);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", (missing.parent_path() / nearest).string());
}

void append_existing(const std::string& path, std::vector<std::string>& files) {
  if (fs::is_directory(path)) {
    append_folder(path, files);
  } else {
    files.push_back(path);
  }
}

void append_glob(const std::string& pattern, std::vector<std::string>& files) {
  glob_t matches{};
  const int status = glob(pattern.c_str(), GLOB_TILDE, nullptr, &matches);
  const std::vector<std::string> found(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
  globfree(&matches);
  TUTTI_CHECK_ENV(status == 0 || status == GLOB_NOMATCH, "cannot expand the data pattern '{}'", pattern);
  TUTTI_CHECK(!found.empty(), "no file matches the data pattern '{}'", pattern);
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> expand_patterns(std::span<const std::string> paths) {
  TUTTI_CHECK(!paths.empty(), "no data: name at least one file, folder or pattern");
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::exists(path, error)) {
      found.push_back(path);
    } else if (path.find_first_of("*?[") != std::string::npos) {
      append_glob(path, found);
    } else {
      TUTTI_CHECK(!fs::is_symlink(path), "data path '{}' is a link to '{}', which does not exist", path,
                  fs::read_symlink(path).string());
      TUTTI_CHECK(false, "data path '{}' does not exist{}", path, hint_for(path));
    }
  }
  return found;
}

std::vector<std::string> expand_text_paths(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const std::string& path : expand_patterns(paths)) append_existing(path, files);
  TUTTI_CHECK(!files.empty(), "no file in the data {} {}", paths.size() == 1 ? "folder" : "paths, the first being",
              paths.front());
  return files;
}

}  // namespace tutti
