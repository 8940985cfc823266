#include "tutti/io/file_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tutti/core/hash.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/text_files.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using Files = std::span<const FileFingerprint>;

std::string content_of(const FileFingerprint& file) { return fmt::format("{} bytes, hash {:016x}", file.nbytes, file.hash); }

bool equal_content(const FileFingerprint& a, const FileFingerprint& b) { return a.nbytes == b.nbytes && a.hash == b.hash; }

bool share_a_path(Files a, Files b) {
  std::set<std::string> paths;
  for (const FileFingerprint& file : a) paths.insert(file.path);
  return std::any_of(b.begin(), b.end(), [&](const FileFingerprint& file) { return paths.contains(file.path); });
}

// The deepest folder that all files lie in.
fs::path common_folder(Files files) {
  fs::path common = fs::path(files.front().path).parent_path();
  for (const FileFingerprint& file : files) {
    const fs::path folder = fs::path(file.path).parent_path();
    fs::path shared;
    for (auto a = common.begin(), b = folder.begin(); a != common.end() && b != folder.end() && *a == *b; ++a, ++b) shared /= *a;
    common = shared;
  }
  return common;
}

// The names by which the files of two lists are matched.
std::vector<std::string> names_of(Files files, bool by_path) {
  std::vector<std::string> names;
  const fs::path folder = by_path || files.empty() ? fs::path() : common_folder(files);
  for (const FileFingerprint& file : files) {
    names.push_back(folder.empty() ? file.path : fs::path(file.path).lexically_relative(folder).string());
  }
  return names;
}

}  // namespace

std::vector<FileFingerprint> fingerprint_files(std::span<const std::string> paths) {
  std::vector<FileFingerprint> list;
  for (const std::string& path : expand_text_paths(paths)) {
    const MappedFile file(path);
    list.push_back({fs::path(path).lexically_normal().string(), static_cast<int64_t>(file.nbytes()), hash64(file.text())});
  }
  return list;
}

std::string first_difference(Files before, Files now) {
  const bool by_path = share_a_path(before, now);
  const std::vector<std::string> old_names = names_of(before, by_path), new_names = names_of(now, by_path);
  const std::set<std::string> old_set(old_names.begin(), old_names.end()), new_set(new_names.begin(), new_names.end());
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i < before.size() && i < now.size() && old_names[i] == new_names[i]) {
      if (equal_content(before[i], now[i])) continue;
      return fmt::format("the file {} changed: it had {}, and has {}", now[i].path, content_of(before[i]), content_of(now[i]));
    }
    const bool gone = i < before.size() && !new_set.contains(old_names[i]), added = i < now.size() && !old_set.contains(new_names[i]);
    if (gone && added && equal_content(before[i], now[i])) {
      return fmt::format("the file {} is called {} now ({})", before[i].path, now[i].path, content_of(now[i]));
    }
    if (gone) return fmt::format("the file {} was removed ({})", before[i].path, content_of(before[i]));
    if (added) return fmt::format("the file {} was added ({})", now[i].path, content_of(now[i]));
    if (i >= before.size()) return fmt::format("the file {} ({}) is read once more, at place {}", now[i].path, content_of(now[i]), i + 1);
    if (i >= now.size()) return fmt::format("the file {} ({}) is not read again, at place {}", before[i].path, content_of(before[i]), i + 1);
    return fmt::format("the files were reordered: at place {} stood {} ({}), and stands {} ({})", i + 1, before[i].path,
                       content_of(before[i]), now[i].path, content_of(now[i]));
  }
  for (size_t i = 0; i < now.size(); ++i) {
    if (before[i].path != now[i].path) return fmt::format("the file {} lies at {} now ({})", before[i].path, now[i].path, content_of(now[i]));
  }
  return "";
}

}  // namespace tutti
