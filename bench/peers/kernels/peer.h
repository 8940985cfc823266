// The code that the programs of this folder share. Each reads cases from its input, one a line ("gemm 1024 1024 1024
// f32 kn"), runs them with the clock of `tutti bench` and answers with one JSON object a line; results are compared
// with loops in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench::peers {

// The words of a case: "OP SIZES... DTYPE [LAYOUT]". Layouts of a product's B: kn; nk, the weight of a linear layer;
// packed, nk brought into the library's own order before the clock runs.
struct Case {
  std::string op, dtype, layout;
  std::vector<long> sizes;
  long count() const {
    long n = 1;
    for (const long s : sizes) n *= s;
    return n;
  }
};

struct Answer {
  Timing time;
  double error = 0;    // the worst of the compared elements, as a part of what its rounding may be
  std::string kernel;  // as the library names it
};

// Nothing: the library has no such operation, or none for this machine.
using Runner = std::function<std::optional<Answer>(const Case&)>;

inline Case parse(const std::string& line) {
  Case c;
  std::istringstream words(line);
  words >> c.op;
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0]))) c.sizes.push_back(std::stol(word));
    else (c.dtype.empty() ? c.dtype : c.layout) = word;
  }
  return c;
}

inline int serve(const std::string& version, const std::string& isa, const Runner& run) {
  std::printf("{\"version\":\"%s\",\"isa\":\"%s\"}\n", version.c_str(), isa.c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      if (const std::optional<Answer> a = run(parse(line)))
        std::printf("{\"min_us\":%.4f,\"median_us\":%.4f,\"error\":%.3g,\"kernel\":\"%s\"}\n", a->time.min_us,
                    a->time.median_us, a->error, a->kernel.c_str());
      else std::printf("{\"missing\":\"no such operation\"}\n");
    } catch (const std::exception& e) {
      std::printf("{\"missing\":\"%s\"}\n", e.what());
    }
    std::fflush(stdout);
  }
  return 0;
}

// Elements that begin at a page, so that no library meets memory worse aligned than another.
template <class T>
class Elements {
 public:
  explicit Elements(long count)
      : memory_(static_cast<T*>(std::aligned_alloc(4096, (count * sizeof(T) + 4095) / 4096 * 4096))), count_(count) {
    if (!memory_) throw std::runtime_error("no memory for the operands");
    std::fill_n(memory_.get(), count, T{});
  }
  T* data() const { return memory_.get(); }
  long size() const { return count_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> memory_;
  long count_;
};

// The upper half of a float, rounded by cutting, which is enough for operands.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(double value) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(&bits, reinterpret_cast<const char*>(&narrow) + 2, 2);
  }
  explicit operator double() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
};

// Floats in [-1, 1), the same in every run. Integers of 7 bits: AVX2 sums pairs of products of 8 bits in 16 with
// saturation, which is what oneDNN uses there, so its results are right for such weights only.
template <class T>
Elements<T> random_elements(long count, uint64_t state) {
  Elements<T> out(count);
  for (long i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto word = static_cast<int32_t>(state >> 32);
    if constexpr (std::is_integral_v<T>) out.data()[i] = static_cast<T>(word >> 25);
    else out.data()[i] = static_cast<T>(static_cast<double>(word) * 0x1p-31);
  }
  return out;
}

// Checks 61 elements of C = A B: how far they are from the sum in double precision, against a millionth of the sum of
// absolute values and, where C is narrower than 32 bits, one part in 128 of it.
template <class T, class Sum>
double product_error(const Case& c, const Elements<T>& a, const Elements<T>& b, const Elements<Sum>& result) {
  const long m = c.sizes[0], n = c.sizes[1], k = c.sizes[2];
  double worst = 0;
  for (long e = 0; e < m * n; e += std::max(m * n / 61, 1L)) {
    const long row = e / n, column = e % n;
    double sum = 0, absolute = 0;
    for (long i = 0; i < k; ++i) {
      const double term = static_cast<double>(a.data()[row * k + i]) *
                          static_cast<double>(b.data()[c.layout == "kn" ? i * n + column : column * k + i]);
      sum += term;
      absolute += std::abs(term);
    }
    worst = std::max(worst, std::abs(sum - static_cast<double>(result.data()[e])) /
                                (1e-6 * absolute + (sizeof(Sum) < 4 ? std::abs(sum) / 128 : 0)));
  }
  return worst;
}

// The same of functions of elements: `expected(i)`, against ten parts in a million of 1 and of itself.
inline double pointwise_error(const Elements<float>& result, const std::function<double(long)>& expected,
                              double floor = 1) {
  double worst = 0;
  for (long i = 0; i < result.size(); i += std::max(result.size() / 1009, 1L)) {
    const double want = expected(i);
    worst = std::max(worst, std::abs(want - result.data()[i]) / (1e-5 * (floor + std::abs(want))));
  }
  return worst;
}

inline double softmax_of_row(const float* row, long columns, long column) {
  double sum = 0;
  for (long i = 0; i < columns; ++i) sum += std::exp(static_cast<double>(row[i]));
  return std::exp(static_cast<double>(row[column])) / sum;
}

// An element of a layer norm with eps 1e-5, before weight and bias.
inline double normed_of_row(const float* row, long columns, long column) {
  double sum = 0, squares = 0;
  for (long i = 0; i < columns; ++i) sum += row[i], squares += static_cast<double>(row[i]) * row[i];
  const double mean = sum / static_cast<double>(columns),
               variance = squares / static_cast<double>(columns) - mean * mean;
  return (row[column] - mean) / std::sqrt(variance + 1e-5);
}

inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace tutti::bench::peers
