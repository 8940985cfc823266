#include "tutti/io/click_reader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "tutti/core/error.h"

namespace tutti {

ClickPosition ClickPosition::of(const std::vector<int64_t>& numbers) {
  TUTTI_CHECK(numbers.size() == 6, "clicks: a position of {} numbers; expected 6", numbers.size());
  return {numbers[0], numbers[1], {numbers[2], numbers[3], numbers[4], numbers[5]}};
}

std::unique_ptr<io::ClickFile> io::open_click_file(const std::string& path, const ClickColumns& columns,
                                                   char delimiter) {
  std::error_code ignored;  // a path that cannot be looked at cannot be opened, which names it
  return std::filesystem::is_directory(path, ignored) ? open_click_npy(path, columns)
                                                      : open_click_csv(path, columns, delimiter);
}

ClickReader::ClickReader(std::vector<std::string> paths, ClickColumns columns, const ClickReaderOptions& options)
    : paths_(std::move(paths)), columns_(std::move(columns)), options_(options) {
  TUTTI_CHECK(!paths_.empty(), "clicks: no files to read");
  std::set<std::string_view> names;
  const auto add_name = [&](const std::string& name) {
    TUTTI_CHECK(names.insert(name).second, "clicks: the column '{}' is named twice", name);
  };
  add_name(columns_.label);
  for (const std::string& name : columns_.dense) add_name(name);
  for (const ClickColumns::Category& c : columns_.categories) {
    add_name(c.name);
    TUTTI_CHECK(c.rows > 0, "clicks: the table of column '{}' has {} rows; expected 1 or more", c.name, c.rows);
  }
}

ClickReader::~ClickReader() = default;

io::ClickFile& ClickReader::current() {
  if (file_) return *file_;
  const std::string& path = paths_[static_cast<size_t>(at_.file)];
  std::unique_ptr<io::ClickFile> file = io::open_click_file(path, columns_, options_.delimiter);
  if (at_.place != io::ClickPlace{}) file->seek(at_.place);
  file_ = std::move(file);
  return *file_;
}

// Returns false when all files have been read.
bool ClickReader::next_file() {
  if (at_.file + 1 == static_cast<int64_t>(paths_.size())) {
    if (!options_.repeats) return false;
    ++at_.epoch;
    at_.file = 0;
  } else {
    ++at_.file;
  }
  at_.place = {};
  file_.reset();
  return true;
}

// Calls take(file, rows so far), which returns a number of rows, until there are `count`.
template <class Take>
int64_t ClickReader::advance(int64_t count, const Take& take) {
  TUTTI_CHECK(count >= 0, "clicks: {} rows; expected 0 or more", count);
  int64_t done = 0;
  size_t without_rows = 0;  // files in a row
  while (done < count) {
    const int64_t taken = take(current(), done);
    done += taken;
    if (taken > 0) continue;
    without_rows = file_->place().row == 0 ? without_rows + 1 : 0;
    TUTTI_CHECK_ENV(without_rows < paths_.size() || !options_.repeats, "clicks: none of {} files has a row; {} is one",
                    paths_.size(), paths_[static_cast<size_t>(at_.file)]);
    if (!next_file()) break;
  }
  return done;
}

ClickRows ClickReader::read(int64_t count) {
  ClickRows rows = empty_click_rows(columns_, std::max<int64_t>(count, 0));
  const size_t dense = columns_.dense.size(), categories = columns_.categories.size();
  const int64_t done = advance(count, [&](io::ClickFile& file, int64_t from) -> int64_t {
    const auto row = static_cast<size_t>(from);
    return file.read({.dense = rows.dense.data<float>() + row * dense,
                      .categories = rows.categories.data<int64_t>() + row * categories,
                      .label = rows.labels.data<float>() + row})
               ? 1
               : 0;
  });
  if (done == count) return rows;
  const auto first = [&](const Tensor& t) {
    Extents sizes = t.extents();
    sizes[0] = done;
    return t.view_as(sizes, t.strides(), t.offset());
  };
  return {first(rows.dense), first(rows.categories), first(rows.labels)};
}

int64_t ClickReader::skip(int64_t count) {
  return advance(count, [&](io::ClickFile& file, int64_t done) { return file.skip(count - done); });
}

ClickPosition ClickReader::position() const {
  ClickPosition position = at_;
  if (file_) position.place = file_->place();
  return position;
}

void ClickReader::seek(const ClickPosition& position) {
  TUTTI_CHECK_ENV(position.epoch >= 0 && position.file >= 0 && position.file < static_cast<int64_t>(paths_.size()),
                  "clicks: file {} of epoch {} is none of the {} files that are read", position.file, position.epoch,
                  paths_.size());
  const ClickPosition before = this->position();
  at_ = position;
  file_.reset();
  try {
    current();
  } catch (...) {
    at_ = before;
    throw;
  }
}

}  // namespace tutti
