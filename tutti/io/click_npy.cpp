#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/io/click_file.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/npy_header.h"

namespace tutti::io {
namespace {

// The rows of one file, [n, width] or [n].
class NpyRows {
 public:
  NpyRows(const std::string& path, int64_t width, bool is_matrix, std::span<const DType> dtypes) : file_(path) {
    const NpyHeader header = parse_npy_header(file_.bytes(), path);
    dtype_ = header.dtype;
    TUTTI_CHECK_ENV(std::find(dtypes.begin(), dtypes.end(), dtype_) != dtypes.end() && !header.swapped,
                    "clicks: {} holds {}{}; expected {} in the byte order of this machine", path,
                    header.swapped ? "swapped " : "", name_of(dtype_), fmt::join(names_of(dtypes), " or "));
    const bool fits = is_matrix ? header.shape.ndim() == 2 && header.shape[1] == width : header.shape.ndim() == 1;
    TUTTI_CHECK_ENV(fits && (!header.fortran_order || header.shape.ndim() == 1),
                    "clicks: {} has the shape [{}]{}; expected {} in C order", path, fmt::join(header.shape, ", "),
                    header.fortran_order ? " in Fortran order" : "",
                    is_matrix ? fmt::format("[rows, {}]", width) : "[rows]");
    rows_ = header.shape[0];
    data_ = file_.bytes().subspan(static_cast<size_t>(header.data_start));
    number_ = click_file_number(file_.nbytes(), file_.text().substr(0, static_cast<size_t>(header.data_start)));
    row_nbytes_ = static_cast<size_t>(width * itemsize(dtype_));
  }

  int64_t rows() const { return rows_; }
  int64_t number() const { return number_; }
  DType dtype() const { return dtype_; }
  const std::string& path() const { return file_.path(); }

  template <class T>
  T at(int64_t row, size_t column) const {
    T value;
    std::memcpy(&value, data_.data() + static_cast<size_t>(row) * row_nbytes_ + column * sizeof(T), sizeof(T));
    return value;
  }
  int64_t integer_at(int64_t row, size_t column) const {
    return dtype_ == DType::i64 ? at<int64_t>(row, column) : at<int32_t>(row, column);
  }
  double number_at(int64_t row, size_t column) const {
    switch (dtype_) {
      case DType::f32:
        return static_cast<double>(at<float>(row, column));
      case DType::u8:
      case DType::boolean:
        return at<uint8_t>(row, column);
      default:
        return static_cast<double>(integer_at(row, column));
    }
  }

  // The rows before this one need not stay in memory.
  void pass(int64_t row) {
    constexpr size_t kForgetNbytes = size_t{16} << 20;
    const size_t reached = static_cast<size_t>(row) * row_nbytes_;
    if (reached < forgotten_) forgotten_ = reached;
    if (reached - forgotten_ < kForgetNbytes) return;
    forget_pages(data_.subspan(forgotten_, reached - forgotten_));
    forgotten_ = reached;
  }

 private:
  static std::vector<std::string> names_of(std::span<const DType> dtypes) {
    std::vector<std::string> names;
    for (const DType dtype : dtypes) names.emplace_back(name_of(dtype));
    return names;
  }

  const MappedFile file_;
  DType dtype_ = DType::f32;
  int64_t rows_ = 0, number_ = 0;
  std::span<const std::byte> data_;
  size_t row_nbytes_ = 0, forgotten_ = 0;
};

constexpr DType kLabels[] = {DType::f32, DType::i32, DType::i64, DType::u8, DType::boolean};
constexpr DType kDense[] = {DType::f32};
constexpr DType kCategories[] = {DType::i32, DType::i64};

class ClickNpy final : public ClickFile {
 public:
  ClickNpy(const std::string& folder, const ClickColumns& columns)
      : columns_(columns),
        label_(folder + "/label.npy", 1, false, kLabels),
        dense_(folder + "/dense.npy", static_cast<int64_t>(columns.dense.size()), true, kDense),
        categories_(folder + "/categories.npy", static_cast<int64_t>(columns.categories.size()), true, kCategories) {
    TUTTI_CHECK_ENV(dense_.rows() == label_.rows() && categories_.rows() == label_.rows(),
                    "clicks: {} has {} rows in label.npy, {} in dense.npy and {} in categories.npy", folder,
                    label_.rows(), dense_.rows(), categories_.rows());
    const int64_t numbers[] = {label_.number(), dense_.number(), categories_.number()};
    number_ = click_file_number(sizeof numbers, {reinterpret_cast<const char*>(numbers), sizeof numbers});
  }

  bool read(const ClickRow& row) override {
    if (row_ == label_.rows()) return false;
    const double label = label_.number_at(row_, 0);
    if (label != 0 && label != 1) refuse(label_, columns_.label, label, "0 or 1");
    *row.label = static_cast<float>(label);
    for (size_t i = 0; i < columns_.dense.size(); ++i) {
      row.dense[i] = dense_.at<float>(row_, i);
      if (!std::isfinite(row.dense[i])) refuse(dense_, columns_.dense[i], row.dense[i], "a finite number");
    }
    for (size_t i = 0; i < columns_.categories.size(); ++i) {
      const ClickColumns::Category& column = columns_.categories[i];
      row.categories[i] = categories_.integer_at(row_, i);
      if (row.categories[i] < 0 || row.categories[i] >= column.rows)
        refuse(categories_, column.name, row.categories[i], fmt::format("a whole number, 0 to {}", column.rows - 1));
    }
    pass(row_ + 1);
    return true;
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = std::clamp<int64_t>(count, 0, label_.rows() - row_);
    pass(row_ + skipped);
    return skipped;
  }

  ClickPlace place() const override { return {.row = row_, .file = number_}; }
  void seek(const ClickPlace& place) override {
    TUTTI_CHECK_ENV(place.file == number_,
                    "clicks: the files beside {} have other sizes or other headers than those that were read before",
                    label_.path());
    TUTTI_CHECK_ENV(place.row >= 0 && place.row <= label_.rows() && place.line == 0 && place.byte == 0,
                    "clicks: {} has no row {} of {}; it is not the file that was read before", label_.path(), place.row,
                    label_.rows());
    pass(place.row);
  }

 private:
  void pass(int64_t row) {
    row_ = row;
    for (NpyRows* file : {&label_, &dense_, &categories_}) file->pass(row);
  }
  template <class T>
  [[noreturn]] void refuse(const NpyRows& file, const std::string& column, T value, const std::string& expected) const {
    throw EnvironmentError(
        fmt::format("clicks: {}, row {}, column '{}': {}; expected {}", file.path(), row_, column, value, expected));
  }

  const ClickColumns columns_;
  NpyRows label_, dense_, categories_;
  int64_t number_ = 0, row_ = 0;
};

}  // namespace

std::unique_ptr<ClickFile> open_click_npy(const std::string& folder, const ClickColumns& columns) {
  return std::make_unique<ClickNpy>(folder, columns);
}

}  // namespace tutti::io
