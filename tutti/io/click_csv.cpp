#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/click_file.h"
#include "tutti/io/text_window.h"

namespace tutti::io {
namespace {

constexpr size_t kLongestLine = size_t{1} << 20;

// Whether a decimal number that no double can hold is too small, not too large.
bool is_tiny(std::string_view number) {
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, e);
  const size_t first = digits.find_first_of("123456789"), point = std::min(digits.find('.'), digits.size());
  const int64_t places = static_cast<int64_t>(point) - static_cast<int64_t>(first);  // 1e1 has 1, 0.1 has -1
  int64_t exponent = 0;
  std::string_view rest = number.substr(std::min(e + 1, number.size()));
  if (rest.starts_with('+')) rest.remove_prefix(1);
  const auto error = std::from_chars(rest.data(), rest.data() + rest.size(), exponent).ec;
  if (error == std::errc::result_out_of_range) return rest.starts_with('-');
  return exponent < -places;
}

// Rounds to the nearest f32, which is a zero with the sign of the number up to half of the smallest one. Returns false
// for a text that is no number, or one whose f32 is infinite. from_chars() itself reports numbers that are too small
// for a type as it does those that are too large.
bool parse_f32(std::string_view text, float& value) {
  const char *const begin = text.data(), *const end = begin + text.size();
  auto [stopped, error] = std::from_chars(begin, end, value);
  if (stopped != end || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range) {
    double wide = 0;
    if (std::from_chars(begin, end, wide).ec == std::errc::result_out_of_range)
      wide = is_tiny(text) ? std::copysign(0.0, text.starts_with('-') ? -1.0 : 1.0) : HUGE_VAL;
    value = static_cast<float>(wide);
  }
  return std::isfinite(value);
}

class ClickCsv final : public ClickFile {
 public:
  ClickCsv(const std::string& file, const ClickColumns& columns, char delimiter)
      : file_(file), columns_(columns), delimiter_(delimiter), is_named_gzip_(file.ends_with(".gz")) {
    rewind();
    read_header();
    first_ = place_;
  }

  bool read(const ClickRow& row) override {
    std::string_view line;
    if (!next_line(line)) return false;
    size_t field = 0;
    for (std::string_view rest = line;; ++field) {
      const size_t end = rest.find(delimiter_);
      if (field < meanings_.size()) take(rest.substr(0, end), field, row);
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
    TUTTI_CHECK_ENV(field + 1 == meanings_.size(), "clicks: {}, line {}: {} fields; its header has {}", file_,
                    place_.line, field + 1, meanings_.size());
    pass_line();
    ++place_.row;
    return true;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    std::string_view line;
    for (; skipped < count && next_line(line); ++skipped) {
      pass_line();
      ++place_.row;
    }
    return skipped;
  }

  ClickPlace place() const override { return place_; }

  // A line begins behind the end of another, or where a last line without one ends.
  void seek(const ClickPlace& place) override {
    const auto check = [&](bool ok) {
      TUTTI_CHECK_ENV(ok, "clicks: {} has no line that begins at byte {}; it is not the file that was read before",
                      file_, place.byte);
    };
    TUTTI_CHECK_ENV(place.file == first_.file,
                    "clicks: {} has another size or another header than the file that was read before", file_);
    check(place.row >= 0 && place.line >= first_.line && place.byte >= first_.byte);
    rewind();
    check(move_to(place.byte - 1) && has_text());
    const bool is_behind_a_line = window_->text().front() == '\n';
    check(move_to(place.byte) && (is_behind_a_line || !has_text()));
    place_ = place;
  }

 private:
  enum class Kind { other, label, dense, category };
  struct Meaning {
    Kind kind = Kind::other;
    size_t index = 0;
  };

  void rewind() {
    window_.emplace(file_, is_named_gzip_);
    place_ = {.row = 0, .line = 1, .byte = 0, .file = first_.file};
    line_nbytes_ = 0;
  }

  // Makes `byte`, which is not before it, the position. Returns false when the file ends before.
  bool move_to(int64_t byte) {
    while (place_.byte < byte) {
      if (!has_text()) return false;
      const size_t step = std::min(window_->text().size(), static_cast<size_t>(byte - place_.byte));
      window_->drop(step);
      place_.byte += static_cast<int64_t>(step);
    }
    return true;
  }

  bool has_text() { return !window_->text().empty() || window_->grow(); }

  // The next line that is not blank, without its end; false at the end of the file. pass_line() goes behind it.
  bool next_line(std::string_view& line) {
    for (;;) {
      size_t looked = 0;
      const char* end = nullptr;
      for (;;) {
        const std::string_view text = window_->text();
        if (text.size() > looked)
          end = static_cast<const char*>(std::memchr(text.data() + looked, '\n', text.size() - looked));
        looked = text.size();
        const size_t nbytes = end ? static_cast<size_t>(end - text.data()) : looked;
        TUTTI_CHECK_ENV(nbytes <= kLongestLine, "clicks: {}, line {}: it has more than {} bytes", file_, place_.line,
                        kLongestLine);
        if (end || !window_->grow()) break;
      }
      const std::string_view text = window_->text();
      if (text.empty()) return false;
      line_nbytes_ = end ? static_cast<size_t>(end - text.data()) + 1 : text.size();
      line = text.substr(0, end ? line_nbytes_ - 1 : line_nbytes_);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) return true;
      pass_line();
    }
  }
  void pass_line() {
    window_->drop(line_nbytes_);
    place_.byte += static_cast<int64_t>(line_nbytes_);
    ++place_.line;
  }

  void read_header() {
    std::string_view line;
    TUTTI_CHECK_ENV(next_line(line), "clicks: {} is empty; expected a header with the names of the columns", file_);
    if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    std::unordered_map<std::string_view, size_t> fields;
    std::string_view rest = line;
    for (size_t field = 0;; ++field) {
      const size_t end = rest.find(delimiter_);
      const std::string_view name = rest.substr(0, end);
      TUTTI_CHECK(fields.emplace(name, field).second, "clicks: {} has the column '{}' twice", file_, name);
      meanings_.push_back({});
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
    const auto find = [&](const std::string& name, Kind kind, size_t index) {
      const auto found = fields.find(name);
      TUTTI_CHECK(found != fields.end(), "clicks: {} has no column '{}'; its header is: {}", file_, name,
                  line.substr(0, 500));
      meanings_[found->second] = {kind, index};
    };
    find(columns_.label, Kind::label, 0);
    for (size_t i = 0; i < columns_.dense.size(); ++i) find(columns_.dense[i], Kind::dense, i);
    for (size_t i = 0; i < columns_.categories.size(); ++i) find(columns_.categories[i].name, Kind::category, i);
    place_.file = click_file_number(window_->file_nbytes(), line);
    pass_line();
  }

  void take(std::string_view text, size_t field, const ClickRow& row) const {
    const Meaning meaning = meanings_[field];
    if (meaning.kind == Kind::other) return;
    if (meaning.kind == Kind::category) {
      const ClickColumns::Category& column = columns_.categories[meaning.index];
      int64_t value = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= column.rows)
        refuse(text, field, column.name, fmt::format("a whole number, 0 to {}", column.rows - 1));
      row.categories[meaning.index] = value;
      return;
    }
    float value = 0;
    const bool is_number = parse_f32(text, value);
    if (meaning.kind == Kind::dense) {
      if (!is_number) refuse(text, field, columns_.dense[meaning.index], "a finite number");
      row.dense[meaning.index] = value;
    } else {
      if (!is_number || (value != 0 && value != 1)) refuse(text, field, columns_.label, "0 or 1");
      *row.label = value;
    }
  }
  [[noreturn]] void refuse(std::string_view text, size_t field, const std::string& column,
                           const std::string& expected) const {
    throw EnvironmentError(fmt::format("clicks: {}, line {}, column '{}' (field {}): '{}'; expected {}", file_,
                                       place_.line, column, field + 1, text.substr(0, 80), expected));
  }

  const std::string file_;
  const ClickColumns columns_;
  const char delimiter_;
  const bool is_named_gzip_;
  std::optional<TextWindow> window_;
  std::vector<Meaning> meanings_;  // of each field
  ClickPlace place_, first_;       // first_: behind the header
  size_t line_nbytes_ = 0;         // of the line that next_line() found, its end included
};

}  // namespace

int64_t click_file_number(size_t nbytes, std::string_view header) {
  return static_cast<int64_t>(hash64(header, nbytes) >> 11);
}

std::unique_ptr<ClickFile> open_click_csv(const std::string& file, const ClickColumns& columns, char delimiter) {
  return std::make_unique<ClickCsv>(file, columns, delimiter);
}

}  // namespace tutti::io
