// Tensors as text.
//
//   [[ 1.0000, -2.5000],
//    [10.0000,     nan]], bf16
//
// One format for all elements: floats with the digits after the point that the shown values need, at most four; in
// scientific notation when the magnitudes differ too much for that. A tensor of more than 1000 elements shows three
// elements at each end of its long dims. The dtype follows when it is not f32, the device when it is not the cpu, the
// sizes when there are no elements.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

constexpr int64_t kElisionThreshold = 1000, kEdge = 3;
constexpr size_t kLineWidth = 100;
constexpr int kMostDecimals = 4;

// The positions of a dim that are shown; -1 stands for the elided rest.
std::vector<int64_t> shown_positions(int64_t size, bool elide) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < size; ++i) {
    if (elide && size > 2 * kEdge && i == kEdge) {
      positions.push_back(-1);
      i = size - kEdge;
    }
    positions.push_back(i);
  }
  return positions;
}

struct FloatFormat {
  bool scientific = false;
  int decimals = 1;
  std::string text(double value) const {
    if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return scientific ? fmt::format("{:.{}e}", value, decimals) : fmt::format("{:.{}f}", value, decimals);
  }
};

// The fewest decimals, up to the most, at which every value prints as it does with the most.
FloatFormat choose_format(const std::vector<double>& values) {
  double largest = 0, smallest = INFINITY;
  bool whole = true;
  for (double v : values) {
    if (!std::isfinite(v) || v == 0) continue;
    largest = std::max(largest, std::fabs(v));
    smallest = std::min(smallest, std::fabs(v));
    whole = whole && v == std::trunc(v);
  }
  FloatFormat format;
  if (largest == 0) return format;
  format.scientific = whole ? largest >= 1e9 : largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1e6;
  format.decimals = kMostDecimals;
  const FloatFormat longest = format;
  const auto loses_nothing = [&](int decimals) {
    const FloatFormat shorter{format.scientific, decimals};
    return std::all_of(values.begin(), values.end(), [&](double v) {
      return !std::isfinite(v) || std::stod(shorter.text(v)) == std::stod(longest.text(v));
    });
  };
  while (format.decimals > 1 && loses_nothing(format.decimals - 1)) --format.decimals;
  return format;
}

class Printer {
 public:
  explicit Printer(const Tensor& t) : t_(t) {
    const bool elide = t.numel() > kElisionThreshold;
    for (int64_t size : t.extents()) shown_.push_back(shown_positions(size, elide));
    collect(0, static_cast<const char*>(t.raw_data()));
    if (is_floating(t.dtype())) {
      const FloatFormat format = choose_format(floats_);
      for (double v : floats_) cells_.push_back(format.text(v));
    }
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
    if (t.ndim() == 0) width_ = 0;
  }

  std::string text() {
    write(0);
    return std::move(text_);
  }

 private:
  void collect(size_t dim, const char* element) {
    if (dim == shown_.size()) return add_cell(element);
    const int64_t stride = t_.strides()[dim] * itemsize(t_.dtype());
    for (int64_t i : shown_[dim]) {
      if (i >= 0) collect(dim + 1, element + i * stride);
    }
  }

  void add_cell(const char* element) {
    if (is_floating(t_.dtype())) return floats_.push_back(load_as_double(element, t_.dtype()));
    const int64_t value = load_as_int64(element, t_.dtype());
    cells_.push_back(t_.dtype() != DType::boolean ? std::to_string(value) : value ? "true" : "false");
  }

  void write(size_t dim) {
    if (dim == shown_.size()) {
      text_ += fmt::format("{:>{}}", cells_[next_++], width_);
      return;
    }
    const bool innermost = dim + 1 == shown_.size();
    text_ += '[';
    bool first = true;
    for (int64_t i : shown_[dim]) {
      if (!first) separate(dim, innermost);
      first = false;
      if (i < 0) text_ += "...";
      else write(dim + 1);
    }
    text_ += ']';
  }

  // Rows start on lines of their own, under the first; a blank line for each further bracket that closed. Elements of a
  // row that is too long continue on the next line.
  void separate(size_t dim, bool innermost) {
    text_ += ',';
    const size_t used = text_.size() - (text_.rfind('\n') + 1);  // npos + 1 is 0
    if (innermost && used + 1 + width_ < kLineWidth) {
      text_ += ' ';
      return;
    }
    text_.append(innermost ? 1 : shown_.size() - dim - 1, '\n');
    text_.append(dim + 1, ' ');
  }

  const Tensor& t_;
  std::vector<std::vector<int64_t>> shown_;
  std::vector<double> floats_;
  std::vector<std::string> cells_;
  size_t width_ = 0, next_ = 0;
  std::string text_;
};

}  // namespace

std::string to_string(const Tensor& handle) {
  if (!handle.defined()) return "<undefined>";
  std::string text;
  if (handle.extensions().any([&](const TensorExtension& e) { return !(text = e.text()).empty(); })) return text;
  const Tensor t = host_readable(handle);
  if (t.numel() == 0) text = fmt::format("[], size {}", t.extents());
  else text = Printer(to_device(t, kCpu)).text();
  if (t.dtype() != DType::f32) text += fmt::format(", {}", name_of(t.dtype()));
  if (t.device().kind != DeviceKind::cpu) text += fmt::format(", {}", to_string(t.device()));
  return text;
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << to_string(t); }

}  // namespace tutti
