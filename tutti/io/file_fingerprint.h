// Fingerprints of the files of a corpus, by which a later run detects whether a file has changed and names the first
// one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct FileFingerprint {
  std::string path;
  int64_t nbytes = 0;
  uint64_t hash = 0;  // of all bytes of the file, compressed or not
  bool operator==(const FileFingerprint&) const = default;
};

// Fingerprints every file that `paths` name (text_files.h), in the order in which documents are read from them. Reads
// each file once. Throws the errors of expand_text_paths and MappedFile.
std::vector<FileFingerprint> fingerprint_files(std::span<const std::string> paths);

// One sentence about the first difference between two lists: a file that was added, removed, changed (with old and new
// size and hash), reordered, renamed with the same content, at its place or to another one, or exchanged with another.
// "" for equal lists. If the lists have no path in common, as after a folder was moved, files are matched by their
// paths relative to each list's folder.
std::string first_difference(std::span<const FileFingerprint> before, std::span<const FileFingerprint> now);

}  // namespace tutti
