// ClickReader: rows of click data from files, one after another, in memory that does not depend on the files' sizes.
//
// Row i of a run is the same whatever reads it: files are read in the order given, and anew from the first after the
// last. Where several ranks share a step, each reads the rows of its own virtual shards and passes over the others':
//
//   for (int64_t shard = 0; shard < shards; ++shard) {
//     if (is_own(shard)) rows = reader.read(rows_of_shard);
//     else reader.skip(rows_of_shard);
//   }
//
// A reader belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/io/click_file.h"
#include "tutti/io/click_rows.h"

namespace tutti {

struct ClickReaderOptions {
  bool repeats = true;   // false: the rows end with the last file
  char delimiter = ',';  // of text files
};

// Where a reader stands: its next row. A checkpoint keeps it as numbers().
struct ClickPosition {
  int64_t epoch = 0, file = 0;
  io::ClickPlace place = {};  // in that file; all 0: at its beginning

  std::vector<int64_t> numbers() const { return {epoch, file, place.row, place.line, place.byte, place.file}; }
  // UsageError for another number of numbers.
  static ClickPosition of(const std::vector<int64_t>& numbers);
  bool operator==(const ClickPosition&) const = default;
};

class ClickReader {
 public:
  // Each path is a folder of npy files or a text file (click_file.h). Column names must differ, and tables have
  // rows: UsageError. Files are opened as their turn comes, with the errors of click_file.h.
  ClickReader(std::vector<std::string> paths, ClickColumns columns, const ClickReaderOptions& options = {});
  ~ClickReader();

  // The next `count` rows; without `repeats` fewer at the end, then none. After an error the reader stands at the row
  // that has it. EnvironmentError when no file has a row.
  ClickRows read(int64_t count);
  // Passes over rows, whose values are not looked at. Returns their number, less at the end without `repeats`.
  int64_t skip(int64_t count);

  ClickPosition position() const;
  // Goes to a position that a reader of the same files has had. EnvironmentError where there is none, and where the
  // file of the position has another size or header than it had.
  void seek(const ClickPosition& position);

  const ClickColumns& columns() const { return columns_; }

 private:
  template <class Take>
  int64_t advance(int64_t count, const Take& take);
  io::ClickFile& current();
  bool next_file();

  const std::vector<std::string> paths_;
  const ClickColumns columns_;
  const ClickReaderOptions options_;
  ClickPosition at_;                     // place: of a file that is not open
  std::unique_ptr<io::ClickFile> file_;  // null: it is opened by the next call
};

}  // namespace tutti
