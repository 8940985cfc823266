#include "tutti/io/generated_clicks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <system_error>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/core/philox.h"
#include "tutti/io/npy_header.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

constexpr int64_t kRowsAtOnce = 4096;

// What is drawn: the third word of a counter says for what, the fourth for which column.
enum class Draw : uint32_t { label, dense, category, dense_weight, category_weight };

std::array<uint32_t, 4> words(uint64_t seed, int64_t index, Draw draw, size_t column) {
  const PhiloxKey at = philox_key(static_cast<uint64_t>(index));
  return philox4x32({at[0], at[1], static_cast<uint32_t>(draw), static_cast<uint32_t>(column)}, philox_key(seed));
}

// In (0, 1).
double uniform_of(uint32_t high, uint32_t low) {
  return (static_cast<double>((uint64_t{high} << 32 | low) >> 12) + 0.5) * 0x1p-52;
}
// Source: Box and Muller 1958.
double normal_of(const std::array<uint32_t, 4>& w) {
  return std::sqrt(-2 * std::log(uniform_of(w[0], w[1]))) * std::cos(2 * std::numbers::pi * uniform_of(w[2], w[3]));
}

// The inverse of the distribution function of the density x^-exponent on [1, rows + 1), rounded down.
int64_t zipf_of(double uniform, int64_t rows, double exponent) {
  const double top = static_cast<double>(rows) + 1, rest = 1 - exponent;
  const double x =
      std::abs(rest) < 1e-9 ? std::pow(top, uniform) : std::pow(uniform * (std::pow(top, rest) - 1) + 1, 1 / rest);
  return std::clamp<int64_t>(static_cast<int64_t>(x) - 1, 0, rows - 1);
}

void check_rows(int64_t first, int64_t count) {
  TUTTI_CHECK(first >= 0 && count >= 0 && count <= INT64_MAX - first, "clicks: {} rows from row {} on", count, first);
}

}  // namespace

struct GeneratedClicks::Row {
  float* dense;
  int64_t* categories;
  float* label;
};

GeneratedClicks::GeneratedClicks(ClickColumns columns, const GeneratedClicksOptions& options)
    : columns_(std::move(columns)), options_(options) {
  for (const ClickColumns::Category& c : columns_.categories)
    TUTTI_CHECK(c.rows > 0, "clicks: the table of column '{}' has {} rows; expected 1 or more", c.name, c.rows);
  TUTTI_CHECK(options.zipf > 0, "clicks: a Zipf exponent of {}; expected more than 0", options.zipf);
  for (const double value : {options.zipf, options.intercept, options.dense_scale, options.category_scale})
    TUTTI_CHECK(std::isfinite(value), "clicks: an option of generated clicks is {}; expected a finite number", value);
  for (size_t j = 0; j < columns_.dense.size(); ++j)
    dense_weights_.push_back(options.dense_scale * normal_of(words(options.seed, 0, Draw::dense_weight, j)));
}

// Returns the true logit.
double GeneratedClicks::make(int64_t index, const Row& row) const {
  double logit = options_.intercept;
  for (size_t j = 0; j < columns_.dense.size(); ++j) {
    row.dense[j] = static_cast<float>(normal_of(words(options_.seed, index, Draw::dense, j)));
    logit += dense_weights_[j] * static_cast<double>(row.dense[j]);
  }
  for (size_t c = 0; c < columns_.categories.size(); ++c) {
    const auto drawn = words(options_.seed, index, Draw::category, c);
    row.categories[c] = zipf_of(uniform_of(drawn[0], drawn[1]), columns_.categories[c].rows, options_.zipf);
    logit += options_.category_scale * normal_of(words(options_.seed, row.categories[c], Draw::category_weight, c));
  }
  const auto drawn = words(options_.seed, index, Draw::label, 0);
  *row.label = uniform_of(drawn[0], drawn[1]) < 1 / (1 + std::exp(-logit)) ? 1.0f : 0.0f;
  return logit;
}

ClickRows GeneratedClicks::rows(int64_t first, int64_t count) const {
  check_rows(first, count);
  ClickRows made = empty_click_rows(columns_, count);
  for (int64_t i = 0; i < count; ++i)
    make(first + i, {.dense = made.dense.data<float>() + i * made.dense.extent(1),
                     .categories = made.categories.data<int64_t>() + i * made.categories.extent(1),
                     .label = made.labels.data<float>() + i});
  return made;
}

Tensor GeneratedClicks::logits(int64_t first, int64_t count) const {
  check_rows(first, count);
  const Tensor made = Tensor::empty({count}, DType::f32);
  const ClickRows one = empty_click_rows(columns_, 1);
  for (int64_t i = 0; i < count; ++i)
    made.data<float>()[i] = static_cast<float>(
        make(first + i, {one.dense.data<float>(), one.categories.data<int64_t>(), one.labels.data<float>()}));
  return made;
}

void GeneratedClicks::write_csv(const std::string& path, int64_t first, int64_t count) const {
  check_rows(first, count);
  AtomicFile file(path);
  std::string text = columns_.label;
  for (const std::string& name : columns_.dense) text += ',' + name;
  for (const ClickColumns::Category& c : columns_.categories) text += ',' + c.name;
  text += '\n';
  for (int64_t done = 0; done < count;) {
    const ClickRows some = rows(first + done, std::min(kRowsAtOnce, count - done));
    done += some.count();
    const float* dense = some.dense.data<float>();
    const int64_t* categories = some.categories.data<int64_t>();
    for (int64_t i = 0; i < some.count(); ++i) {
      fmt::format_to(std::back_inserter(text), "{}", some.labels.data<float>()[i]);
      for (size_t j = 0; j < columns_.dense.size(); ++j) fmt::format_to(std::back_inserter(text), ",{}", *dense++);
      for (size_t c = 0; c < columns_.categories.size(); ++c)
        fmt::format_to(std::back_inserter(text), ",{}", *categories++);
      text += '\n';
    }
    file.write(text);
    text.clear();
  }
  file.write(text);
  file.commit();
}

void GeneratedClicks::write_npy(const std::string& folder, int64_t first, int64_t count) const {
  check_rows(first, count);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  TUTTI_CHECK_ENV(!error, "clicks: the folder '{}' cannot be made: {}", folder, error.message());
  AtomicFile label(folder + "/label.npy"), dense(folder + "/dense.npy"), categories(folder + "/categories.npy");
  label.write(io::npy_header_bytes(DType::f32, {count}));
  dense.write(io::npy_header_bytes(DType::f32, {count, static_cast<int64_t>(columns_.dense.size())}));
  categories.write(io::npy_header_bytes(DType::i64, {count, static_cast<int64_t>(columns_.categories.size())}));
  for (int64_t done = 0; done < count;) {
    const ClickRows some = rows(first + done, std::min(kRowsAtOnce, count - done));
    done += some.count();
    label.write(some.labels.raw_data(), static_cast<size_t>(some.labels.nbytes()));
    dense.write(some.dense.raw_data(), static_cast<size_t>(some.dense.nbytes()));
    categories.write(some.categories.raw_data(), static_cast<size_t>(some.categories.nbytes()));
  }
  // Labels go first and come last: a folder without them is no click data, so that old and new files are never read
  // together, wherever this stops.
  std::filesystem::remove(folder + "/label.npy", error);
  TUTTI_CHECK_ENV(!error, "clicks: '{}/label.npy' cannot be removed: {}", folder, error.message());
  for (AtomicFile* file : {&dense, &categories, &label}) file->commit();
}

}  // namespace tutti
