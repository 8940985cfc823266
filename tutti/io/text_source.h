// Reading documents from text files.
//
// The kind of a file follows from its name without .gz and .dz (compression itself is detected from the contents):
//   .jsonl   one document per line, the string under `text_field`; blank lines are skipped
//   .dict    a dict server's database: one document per entry. An entry starts at a line without indentation after a
//            blank line; the header entries "00-database-..." are skipped
//   other    one document per file. A file larger than `large_file_nbytes` is divided into sections of at least
//            `section_nbytes`, at the next blank line, else line end, else (within twice the size) in the middle, so
//            that a book can be shuffled and a part of it held out
// Bytes are kept as they are, valid UTF-8 or not. Documents that consist of white space are skipped. Compressed files
// are expanded as they are read, and a line or an entry has at most `longest_nbytes`, so the memory that reading takes
// does not depend on the size of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/text_counts.h"

namespace tutti {

struct TextSourceOptions {
  int64_t large_file_nbytes = 64 << 10;
  int64_t section_nbytes = 16 << 10;
  int64_t longest_nbytes = int64_t{64} << 20;
  std::string text_field = "text";
  bool reads_binary = false;  // also what holds no text (binary_data.h)
};

// Calls `take` with each document of each file in order; the view is valid only during the call.
// UsageError, naming the file, for binary data, and, naming also the line, for a malformed JSON line or one that is too
// long. EnvironmentError for an unreadable file or damaged gzip data.
TextCounts for_each_document(std::span<const std::string> files, const std::function<void(std::string_view)>& take,
                             const TextSourceOptions& options = {});

// All documents of the files that `paths` name (text_files.h). UsageError when there are none.
struct TextDocuments {
  std::vector<std::string> documents;
  TextCounts counts;
};
TextDocuments read_counted_documents(std::span<const std::string> paths, const TextSourceOptions& options = {});
std::vector<std::string> read_documents(std::span<const std::string> paths, const TextSourceOptions& options = {});

}  // namespace tutti
