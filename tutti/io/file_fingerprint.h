// What the files of a corpus were, so that a later run can tell whether they still are, and name the first that is not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct FileFingerprint {
  std::string path;
  int64_t nbytes = 0;
  uint64_t hash = 0;  // of all bytes as they lie in the file
  bool operator==(const FileFingerprint&) const = default;
};

// Reads every file that `paths` name (text_files.h) once, in the order in which their documents are read.
// UsageError and EnvironmentError as from expand_text_paths and MappedFile.
std::vector<FileFingerprint> fingerprint_files(std::span<const std::string> paths);

// One sentence about the first place at which two lists differ: a file that was added, removed, changed (old and new size
// and hash), moved to another place in the order, or has another name and the same content. "" for equal lists. Where
// the lists share no path, as after a folder was moved, files are matched by their paths inside each list's folder.
std::string first_difference(std::span<const FileFingerprint> before, std::span<const FileFingerprint> now);

}  // namespace tutti
