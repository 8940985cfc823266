#include "tutti/io/file_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "tutti/core/hash.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/text_files.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using Files = std::span<const FileFingerprint>;

std::string content_of(const FileFingerprint& file) {
  return fmt::format("{} bytes, hash {:016x}", file.nbytes, file.hash);
}

bool equal_content(const FileFingerprint& a, const FileFingerprint& b) {
  return a.nbytes == b.nbytes && a.hash == b.hash;
}

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
    for (auto a = common.begin(), b = folder.begin(); a != common.end() && b != folder.end() && *a == *b; ++a, ++b)
      shared /= *a;
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

// Two lists of files and the names by which they are matched.
class Comparison {
 public:
  Comparison(Files before, Files now)
      : before_(before),
        now_(now),
        by_path_(share_a_path(before, now)),
        old_names_(names_of(before, by_path_)),
        new_names_(names_of(now, by_path_)),
        old_set_(old_names_.begin(), old_names_.end()),
        new_set_(new_names_.begin(), new_names_.end()) {}

  std::string first() const {
    for (size_t i = 0; i < std::max(before_.size(), now_.size()); ++i) {
      if (const std::string text = at(i); !text.empty()) return text;
    }
    for (size_t i = 0; i < now_.size(); ++i) {
      if (before_[i].path != now_[i].path)
        return fmt::format("the file {} was moved to {} ({})", before_[i].path, now_[i].path, content_of(now_[i]));
    }
    return "";
  }

 private:
  // The difference of place i; "" when both lists have the same there.
  std::string at(size_t i) const {
    const bool was = i < before_.size(), is = i < now_.size(), same_name = was && is && old_names_[i] == new_names_[i];
    if (same_name && equal_content(before_[i], now_[i])) return "";
    if (same_name) return changed(i);
    const bool gone = was && !new_set_.contains(old_names_[i]), added = is && !old_set_.contains(new_names_[i]);
    if (gone && renamed_to(i)) return renamed(i, *renamed_to(i));
    if (added && renamed_from(i)) return renamed(*renamed_from(i), i);
    if (gone) return fmt::format("the file {} was removed ({})", before_[i].path, content_of(before_[i]));
    if (added) return fmt::format("the file {} was added ({})", now_[i].path, content_of(now_[i]));
    if (!was)
      return fmt::format("the file {} ({}) is read once more, at place {}", now_[i].path, content_of(now_[i]), i + 1);
    if (!is)
      return fmt::format("the file {} ({}) is not read again, at place {}", before_[i].path, content_of(before_[i]),
                         i + 1);
    return fmt::format("the files were reordered: at place {} stood {} ({}), and stands {} ({})", i + 1,
                       before_[i].path, content_of(before_[i]), now_[i].path, content_of(now_[i]));
  }

  // The same name with other content: that of another file, which may have its content in exchange, or a new one.
  std::string changed(size_t i) const {
    const std::optional<size_t> from = renamed_from(i);
    if (!from)
      return fmt::format("the file {} changed: it had {}, and has {}", now_[i].path, content_of(before_[i]),
                         content_of(now_[i]));
    const auto partner = std::find(new_names_.begin(), new_names_.end(), old_names_[*from]);
    if (partner != new_names_.end() &&
        equal_content(now_[static_cast<size_t>(partner - new_names_.begin())], before_[i])) {
      return fmt::format("the files {} and {} exchanged their names: {} has {} now, and {} has {}", before_[i].path,
                         before_[*from].path, now_[i].path, content_of(now_[i]), before_[*from].path,
                         content_of(before_[i]));
    }
    return renamed(*from, i);
  }

  std::string renamed(size_t from, size_t to) const {
    const std::string moved = from == to ? "" : fmt::format(", and moved from place {} to place {}", from + 1, to + 1);
    return fmt::format("the file {} is called {} now{} ({})", before_[from].path, now_[to].path, moved,
                       content_of(now_[to]));
  }

  // Whether the file at this place has a name, or its name a content, that the other list does not have.
  static bool is_unmatched(size_t i, Files files, const std::vector<std::string>& names, Files others,
                           const std::vector<std::string>& other_names) {
    for (size_t k = 0; k < others.size(); ++k) {
      if (other_names[k] == names[i] && equal_content(files[i], others[k])) return false;
    }
    return true;
  }
  // The place in `files` of what has this content and is unmatched: place `i` before others.
  template <class IsUnmatched>
  static std::optional<size_t> place_of(const FileFingerprint& content, size_t i, Files files,
                                        IsUnmatched is_unmatched) {
    const auto fits = [&](size_t k) { return equal_content(files[k], content) && is_unmatched(k); };
    if (i < files.size() && fits(i)) return i;
    for (size_t k = 0; k < files.size(); ++k) {
      if (fits(k)) return k;
    }
    return std::nullopt;
  }
  std::optional<size_t> renamed_to(size_t i) const {
    return place_of(before_[i], i, now_,
                    [&](size_t k) { return is_unmatched(k, now_, new_names_, before_, old_names_); });
  }
  std::optional<size_t> renamed_from(size_t i) const {
    return place_of(now_[i], i, before_,
                    [&](size_t k) { return is_unmatched(k, before_, old_names_, now_, new_names_); });
  }

  const Files before_, now_;
  const bool by_path_;
  const std::vector<std::string> old_names_, new_names_;
  const std::set<std::string> old_set_, new_set_;
};

}  // namespace

std::vector<FileFingerprint> fingerprint_files(std::span<const std::string> paths) {
  std::vector<FileFingerprint> list;
  for (const std::string& path : expand_text_paths(paths)) {
    const MappedFile file(path);
    list.push_back(
        {fs::path(path).lexically_normal().string(), static_cast<int64_t>(file.nbytes()), hash64(file.text())});
  }
  return list;
}

std::string first_difference(Files before, Files now) { return Comparison(before, now).first(); }

}  // namespace tutti
