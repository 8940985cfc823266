// Selections, scans and pooling against results and gradients of PyTorch: tests/golden/pytorch_ops.txt, whose format
// pytorch_results.py in this folder describes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "tutti/autograd/backward.h"
#include "tutti/ops/avg_pool.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/kthvalue.h"
#include "tutti/ops/logcumsumexp.h"
#include "tutti/ops/max_pool.h"
#include "tutti/ops/median.h"
#include "tutti/ops/mode.h"
#include "tutti/ops/scan.h"

namespace tutti {
namespace {

using Numbers = std::vector<int64_t>;
using Results = std::vector<Tensor>;

struct Case {
  std::string line;
  bool has_ties = false;  // an index may be that of another element of the same value
  Numbers numbers;
  Tensor x, grad;
  Results out;
};

DType dtype_named(const std::string& name) { return dtype_from_name(name); }

Tensor read_tensor(std::istream& in) {
  std::string dtype, value;
  int ndim = 0;
  in >> dtype >> ndim;
  Extents sizes;
  for (int d = 0; d < ndim; ++d) {
    int64_t size = 0;
    in >> size;
    sizes.push_back(size);
  }
  const Tensor t = Tensor::empty(sizes, dtype_named(dtype));
  for (int64_t i = 0; i < t.numel(); ++i) {
    in >> value;
    if (is_floating(t.dtype())) facets::write_double(t, i, std::stod(value));
    else facets::write_int64(t, i, std::stoll(value));
  }
  return t;
}

// The cases of the op `name`.
std::vector<Case> cases_of(const std::string& name) {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/pytorch_ops.txt");
  std::vector<Case> cases;
  bool is_wanted = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string word, op, ties;
    in >> word;
    if (word == "case") {
      in >> op >> ties;
      is_wanted = op == name;
      if (!is_wanted) continue;
      Case& c = cases.emplace_back();
      c.line = line;
      c.has_ties = ties == "ties";
      for (int64_t number; in >> number;) c.numbers.push_back(number);
    } else if (is_wanted && word == "x") {
      cases.back().x = read_tensor(in);
    } else if (is_wanted && word == "out") {
      cases.back().out.push_back(read_tensor(in));
    } else if (is_wanted && word == "grad") {
      cases.back().grad = read_tensor(in);
    }
  }
  return cases;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 2e-6;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

// Within `tolerance` (1 + |expected|) of each other; NaN and infinities agree with themselves.
void expect_near(const Tensor& actual, const Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  ASSERT_EQ(actual.extents(), expected.extents());
  const std::vector<double> a = facets::values(actual, actual.extents()),
                            e = facets::values(expected, expected.extents());
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    EXPECT_TRUE(is_same || std::fabs(a[i] - e[i]) <= tolerance * (1 + std::fabs(e[i])))
        << "element " << i << ": " << a[i] << ", not " << e[i];
  }
}

// Equal, or no higher where equal elements have several indices.
void expect_indices(const Case& c, const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.extents(), expected.extents());
  for (int64_t i = 0; i < actual.numel(); ++i) {
    const int64_t a = facets::read_int64(actual, i), e = facets::read_int64(expected, i);
    EXPECT_TRUE(c.has_ties ? a <= e && a >= 0 : a == e) << "index " << i << ": " << a << ", not " << e;
  }
}

void expect_pytorch(const std::string& name, bool is_exact,
                    const std::function<Results(const Tensor&, const Numbers&)>& run) {
  const std::vector<Case> cases = cases_of(name);
  EXPECT_GE(cases.size(), 6u);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.line);
    const Tensor x = c.grad.defined() ? requires_grad_(c.x) : c.x;
    const Results out = run(x, c.numbers);
    expect_near(out[0], c.out[0], is_exact ? 0 : tolerance_of(c.x.dtype()));
    ASSERT_EQ(out.size(), c.out.size());
    if (out.size() > 1) expect_indices(c, out[1], c.out[1]);
    if (!c.grad.defined()) continue;
    const Tensor weights = Tensor::empty(out[0].extents(), DType::f64);
    for (int64_t i = 0; i < weights.numel(); ++i) weights.data<double>()[i] = static_cast<double>(i % 7 + 1);
    backward(out[0], weights);
    expect_near(grad_of(x), c.grad, 1e-10);
  }
}

template <class Pair>
Results both(const Pair& r) {
  return {r.values, r.indices};
}
Results both(const std::pair<Tensor, Tensor>& r) { return {r.first, r.second}; }

TEST(PytorchResults, OfMedians) {
  expect_pytorch("median", true, [](const Tensor& x, const Numbers&) -> Results { return {median(x)}; });
  expect_pytorch("nanmedian", true, [](const Tensor& x, const Numbers&) -> Results { return {nanmedian(x)}; });
  expect_pytorch("median_dim", true,
                 [](const Tensor& x, const Numbers& n) { return both(median(x, n[0], n[1] != 0)); });
  expect_pytorch("nanmedian_dim", true,
                 [](const Tensor& x, const Numbers& n) { return both(nanmedian(x, n[0], n[1] != 0)); });
}

TEST(PytorchResults, OfKthvalue) {
  expect_pytorch("kthvalue", true,
                 [](const Tensor& x, const Numbers& n) { return both(kthvalue(x, n[0], n[1], n[2] != 0)); });
}

TEST(PytorchResults, OfMode) {
  expect_pytorch("mode", true, [](const Tensor& x, const Numbers& n) { return both(mode(x, n[0], n[1] != 0)); });
}

TEST(PytorchResults, OfScans) {
  expect_pytorch("cumsum", false, [](const Tensor& x, const Numbers& n) -> Results { return {cumsum(x, n[0])}; });
  expect_pytorch("cumprod", false, [](const Tensor& x, const Numbers& n) -> Results { return {cumprod(x, n[0])}; });
  expect_pytorch("cummax", true, [](const Tensor& x, const Numbers& n) { return both(cummax(x, n[0])); });
  expect_pytorch("cummin", true, [](const Tensor& x, const Numbers& n) { return both(cummin(x, n[0])); });
}

TEST(PytorchResults, OfLogcumsumexp) {
  expect_pytorch("logcumsumexp", false,
                 [](const Tensor& x, const Numbers& n) -> Results { return {logcumsumexp(x, n[0])}; });
}

using MaxPool = MaxPoolResult (*)(const Tensor&, const MaxPoolOptions&);
constexpr MaxPool kMaxPools[] = {max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices};
using AvgPool = Tensor (*)(const Tensor&, const AvgPoolOptions&);
constexpr AvgPool kAvgPools[] = {avg_pool1d, avg_pool2d, avg_pool3d};
using AdaptiveMaxPool = MaxPoolResult (*)(const Tensor&, const Dims&);
constexpr AdaptiveMaxPool kAdaptiveMaxPools[] = {adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices,
                                                 adaptive_max_pool3d_with_indices};
using AdaptiveAvgPool = Tensor (*)(const Tensor&, const Dims&);
constexpr AdaptiveAvgPool kAdaptiveAvgPools[] = {adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d};

TEST(PytorchResults, OfMaxPooling) {
  expect_pytorch("max_pool", true, [](const Tensor& x, const Numbers& n) {
    return both(kMaxPools[n[0] - 1](
        x, {.kernel = {n[1]}, .stride = {n[2]}, .padding = {n[3]}, .dilation = {n[4]}, .ceil_mode = n[5] != 0}));
  });
  expect_pytorch("adaptive_max_pool", true,
                 [](const Tensor& x, const Numbers& n) { return both(kAdaptiveMaxPools[n[0] - 1](x, {n[1]})); });
}

TEST(PytorchResults, OfAveragePooling) {
  expect_pytorch("avg_pool", false, [](const Tensor& x, const Numbers& n) -> Results {
    AvgPoolOptions options{
        .kernel = {n[1]}, .stride = {n[2]}, .padding = {n[3]}, .ceil_mode = n[4] != 0, .count_include_pad = n[5] != 0};
    if (n[6] != 0) options.divisor_override = n[6];
    return {kAvgPools[n[0] - 1](x, options)};
  });
  expect_pytorch("adaptive_avg_pool", false,
                 [](const Tensor& x, const Numbers& n) -> Results { return {kAdaptiveAvgPools[n[0] - 1](x, {n[1]})}; });
}

}  // namespace
}  // namespace tutti
