// One file of click data, read from its first row to its last (click_reader.h reads several).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/io/click_columns.h"

namespace tutti::io {

// Where a file stands: the next row, and for text its line, counted from 1, and the byte at which that begins. `file`
// tells files apart: a number made of the sizes and headers on disk.
struct ClickPlace {
  int64_t row = 0, line = 0, byte = 0, file = 0;
  bool operator==(const ClickPlace&) const = default;
};

// Where a row goes.
struct ClickRow {
  float* dense;
  int64_t* categories;
  float* label;
};

class ClickFile {
 public:
  virtual ~ClickFile() = default;
  // Reads the next row and checks it. Returns false at the end of the file.
  virtual bool read(const ClickRow& row) = 0;
  // Passes over up to `count` rows, without looking at their values. Returns their number, less at the end of the file.
  virtual int64_t skip(int64_t count) = 0;
  virtual ClickPlace place() const = 0;
  // Goes to a place that this file, as it was, gave. EnvironmentError when it cannot be a place of the file, and when
  // the file has another size or header than then.
  virtual void seek(const ClickPlace& place) = 0;
};

// The number of a file, 0 to 2^53 - 1, so that it is exact as a number of JSON, too.
int64_t click_file_number(size_t nbytes, std::string_view header);

// A file with a header and a row on each line, whose fields are divided by `delimiter`; gzip is expanded as it is read.
// The columns are found by their names, others are passed over. Quotes have no meaning. UsageError, naming the file and
// what it has, when a column is missing or there twice; EnvironmentError naming file, line and column when a value is
// none of the column's.
std::unique_ptr<ClickFile> open_click_csv(const std::string& file, const ClickColumns& columns, char delimiter);

// A folder with label.npy [n], dense.npy f32 [n, dense columns] and categories.npy [n, category columns], in C order;
// labels are f32, i32, i64, u8 or bool, categories i32 or i64. EnvironmentError, naming file, row and column, as above.
std::unique_ptr<ClickFile> open_click_npy(const std::string& folder, const ClickColumns& columns);

// A folder of npy files, or else a text file.
std::unique_ptr<ClickFile> open_click_file(const std::string& path, const ClickColumns& columns, char delimiter);

}  // namespace tutti::io
