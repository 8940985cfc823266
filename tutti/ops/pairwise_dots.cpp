#include "tutti/ops/pairwise_dots.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/tables/wide_tile.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

void check_features(const char* what, const Tensor& x) {
  TUTTI_CHECK(x.ndim() == 3 && is_floating(x.dtype()), "{}: x is {}; expected floats [batch, features, columns]", what,
              describe(x));
}

template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, double>, double, float>;

template <class Value>
void store(Value* target, Wide<Value> value) {
  if constexpr (std::is_arithmetic_v<Value>) *target = value;
  else store_from_double(target, dtype_of<Value>, static_cast<double>(value));
}

SymInt number_of_pairs(const SymInt& features) { return floordiv(features * (features - 1), 2); }
// Where the pairs of row i begin.
int64_t first_pair(int64_t i) { return i * (i - 1) / 2; }

void infer(const OpCall& call, OutputMetas& out) {
  check_features("pairwise_dots", call[0]);
  out.add(call[0].dtype(), Shape{call[0].size(0), number_of_pairs(call[0].size(1))});
}

void infer_backward(const OpCall& call, OutputMetas& out) {
  check_features("pairwise_dots_backward", call[1]);
  const Shape pairs{call[1].size(0), number_of_pairs(call[1].size(1))};
  TUTTI_CHECK(
      is_floating(call[0].dtype()) && call[0].sizes() == pairs,
      "pairwise_dots_backward: the gradient is {} and x {}; expected floats [batch, features (features - 1) / 2]",
      describe(call[0]), describe(call[1]));
  out.add(compute_dtype(call[1].dtype()), call[1].sizes());
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const int64_t B = x.extents()[0], F = x.extents()[1], D = x.extents()[2];
  int64_t at = 0;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 1; i < F; ++i)
      for (int64_t j = 0; j < i; ++j) {
        double dot = facets::kSumIdentity;
        for (int64_t d = 0; d < D; ++d)
          dot += facets::read_double(x, facets::offset_at(x, {b, i, d})) *
                 facets::read_double(x, facets::offset_at(x, {b, j, d}));
        facets::write_double(outputs[0], at++, dot);
      }
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &grad = call[0], &x = call[1];
  const int64_t B = x.extents()[0], F = x.extents()[1], D = x.extents()[2];
  int64_t at = 0;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < F; ++i)
      for (int64_t d = 0; d < D; ++d) {
        double sum = facets::kSumIdentity;
        for (int64_t j = 0; j < F; ++j) {
          if (j == i) continue;
          const int64_t pair = first_pair(std::max(i, j)) + std::min(i, j);
          sum += facets::read_double(grad, facets::offset_at(grad, {b, pair})) *
                 facets::read_double(x, facets::offset_at(x, {b, j, d}));
        }
        facets::write_double(outputs[0], at++, sum);
      }
}

constexpr int64_t kTileRows = 4, kTileWidth = 16;

// Sums of a tile, each a chain of fmas. Those of floats stay in registers.
template <class Real>
struct TileSums {
  void clear() { std::fill_n(&total[0][0], kTileRows * kTileWidth, static_cast<Real>(facets::kSumIdentity)); }
  void add(int64_t r, Real factor, const Real* row) {
    for (int64_t w = 0; w < kTileWidth; ++w) total[r][w] = std::fma(factor, row[w], total[r][w]);
  }
  void store(Real* out) const { std::copy_n(&total[0][0], kTileRows * kTileWidth, out); }
  Real total[kTileRows][kTileWidth];
};
template <>
struct TileSums<float> {
  void clear() {
    for (auto& row : total)
      for (__m256& sum : row) sum = _mm256_set1_ps(static_cast<float>(facets::kSumIdentity));
  }
  void add(int64_t r, float factor, const float* row) {
    const __m256 by = _mm256_set1_ps(factor);
    total[r][0] = _mm256_fmadd_ps(by, _mm256_loadu_ps(row), total[r][0]);
    total[r][1] = _mm256_fmadd_ps(by, _mm256_loadu_ps(row + 8), total[r][1]);
  }
  void store(float* out) const {
    for (int64_t r = 0; r < kTileRows; ++r) {
      _mm256_storeu_ps(out + r * kTileWidth, total[r][0]);
      _mm256_storeu_ps(out + r * kTileWidth + 8, total[r][1]);
    }
  }
  __m256 total[kTileRows][2];
};

// Four rows of factors, of which row r has none at k = left_out + r; -1: all have.
template <class Real>
struct TileFactors {
  const Real* rows[kTileRows];
  int64_t left_out;
};

// Writes to sums[r][w] the sum of factors.rows[r][k] * rows[k * stride + w] over [begin, end): chains of a leaf,
// halved.
template <class Real>
void add_tile(int64_t begin, int64_t end, const TileFactors<Real>& factors, const Real* rows, int64_t stride,
              Real* sums) {
  const int64_t n = end - begin;
  if (n > codegen::contraction_leaf()) {
    const int64_t middle = begin + (n + 1) / 2;
    Real second[kTileRows * kTileWidth];
    add_tile(begin, middle, factors, rows, stride, sums);
    add_tile(middle, end, factors, rows, stride, second);
    for (int64_t i = 0; i < kTileRows * kTileWidth; ++i) sums[i] += second[i];
    return;
  }
  TileSums<Real> tile;
  tile.clear();
  const auto add_all = [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) {
      tile.add(0, factors.rows[0][k], rows + k * stride);
      tile.add(1, factors.rows[1][k], rows + k * stride);
      tile.add(2, factors.rows[2][k], rows + k * stride);
      tile.add(3, factors.rows[3][k], rows + k * stride);
    }
  };
  const int64_t some = factors.left_out < 0 ? end : std::clamp(factors.left_out, begin, end),
                all_again = factors.left_out < 0 ? end : std::clamp(factors.left_out + kTileRows, begin, end);
  add_all(begin, some);
  for (int64_t k = some; k < all_again; ++k) {
    const Real* const row = rows + k * stride;
    const int64_t without = k - factors.left_out;
    if (without != 0) tile.add(0, factors.rows[0][k], row);
    if (without != 1) tile.add(1, factors.rows[1][k], row);
    if (without != 2) tile.add(2, factors.rows[2][k], row);
    if (without != 3) tile.add(3, factors.rows[3][k], row);
  }
  add_all(all_again, end);
  tile.store(sums);
}

// How products are cut into tiles of kRows rows and kWidth columns, of the backward kBackwardWidth.
template <class Real_>
struct NarrowTiles {
  using Real = Real_;
  using Factors = TileFactors<Real>;
  static constexpr int64_t kRows = kTileRows, kWidth = kTileWidth, kBackwardWidth = kTileWidth;
  template <int64_t>
  static void add(int64_t n, const Factors& factors, const Real* rows, int64_t stride, Real* sums) {
    add_tile<Real>(0, n, factors, rows, stride, sums);
  }
  static void write_columns(const Real* rows, int64_t F, int64_t D, Real* columns, int64_t stride) {
    for (int64_t i = 0; i < F; ++i)
      for (int64_t d = 0; d < D; ++d) columns[d * stride + i] = rows[i * D + d];
  }
};
struct WideTiles {
  using Real = float;
  using Factors = facets::WideFactors;
  static constexpr int64_t kRows = facets::kWideTileRows, kWidth = 16, kBackwardWidth = 32;
  template <int64_t kColumns>
  static void add(int64_t n, const Factors& factors, const float* rows, int64_t stride, float* sums) {
    facets::add_wide_tile<kColumns / 16>(0, n, factors, rows, stride, sums);
  }
  static void write_columns(const float* rows, int64_t F, int64_t D, float* columns, int64_t stride) {
    facets::write_columns(rows, F, D, columns, stride);
  }
};

// A tile's rows of factors from i on; where there are fewer, the last of them again.
template <class Tiles, class Real>
typename Tiles::Factors factors_of(const Real* factors, int64_t i, int64_t count, int64_t stride, int64_t left_out) {
  typename Tiles::Factors of_tile{{}, left_out};
  for (int64_t r = 0; r < Tiles::kRows; ++r) of_tile.rows[r] = factors + std::min(i + r, count - 1) * stride;
  return of_tile;
}

int64_t whole_tiles(int64_t columns, int64_t width) { return (columns + width - 1) / width * width; }

// Calls body(b) for the examples, on several threads when there is much to do.
template <class Body>
void for_each_example(const Tensor& x, const Body& body) {
  const int64_t work = std::max<int64_t>(x.extents()[1] * x.extents()[1] * x.extents()[2], 1);
  ThreadPool::current().parallel_for(x.extents()[0], std::max<int64_t>(kParallelGrain / work, 1), body);
}

// Kernels and not recipes: a batched product packs its operands for each example, which takes longer than products as
// small as these.
template <class Value, class Tiles>
void run(const Tensor& input, const Tensor& output) {
  using Real = typename Tiles::Real;
  const Tensor x = facets::dense_as(input, dtype_of<Real>);
  const int64_t F = x.extents()[1], D = x.extents()[2];
  for_each_example(x, [&](int64_t begin, int64_t end) {
    const int64_t stride = whole_tiles(F, Tiles::kWidth);
    std::vector<Real> columns(static_cast<size_t>(D * stride));  // of what is behind F nothing is used
    Real sums[Tiles::kRows * Tiles::kWidth];
    for (int64_t b = begin; b < end; ++b) {
      const Real* const rows = x.data<Real>() + b * F * D;
      Value* const to = static_cast<Value*>(output.raw_data()) + b * output.extents()[1];
      Tiles::write_columns(rows, F, D, columns.data(), stride);
      for (int64_t i = 0; i < F; i += Tiles::kRows) {
        const int64_t last = std::min(i + Tiles::kRows, F);
        const auto factors = factors_of<Tiles>(rows, i, F, D, -1);
        for (int64_t j = 0; j + 1 < last; j += Tiles::kWidth) {
          Tiles::template add<Tiles::kWidth>(D, factors, columns.data() + j, stride, sums);
          for (int64_t row = i; row < last; ++row)
            for (int64_t w = 0; w < std::min(row - j, Tiles::kWidth); ++w)
              store(to + first_pair(row) + j + w, sums[(row - i) * Tiles::kWidth + w]);
        }
      }
    }
  });
}

template <class Tiles>
void run_backward(const Tensor& grad_input, const Tensor& input, const Tensor& output) {
  using Real = typename Tiles::Real;
  constexpr int64_t kWidth = Tiles::kBackwardWidth;
  const Tensor grad = facets::dense_as(grad_input, dtype_of<Real>), x = facets::dense_as(input, dtype_of<Real>);
  const int64_t F = x.extents()[1], D = x.extents()[2];
  for_each_example(x, [&](int64_t begin, int64_t end) {
    const int64_t stride = whole_tiles(D, kWidth);
    std::vector<Real> padded(stride == D ? 0 : static_cast<size_t>(F * stride));
    std::vector<Real> both(static_cast<size_t>(F * F));  // of each two rows
    Real sums[Tiles::kRows * kWidth];
    for (int64_t b = begin; b < end; ++b) {
      const Real* rows = x.data<Real>() + b * F * D;
      if (stride != D) {
        for (int64_t i = 0; i < F; ++i) std::copy_n(rows + i * D, D, padded.data() + i * stride);
        rows = padded.data();
      }
      const Real* pair = grad.data<Real>() + b * grad.extents()[1];
      for (int64_t i = 1; i < F; ++i)
        for (int64_t j = 0; j < i; ++j, ++pair)
          both[static_cast<size_t>(i * F + j)] = both[static_cast<size_t>(j * F + i)] = *pair;
      for (int64_t i = 0; i < F; i += Tiles::kRows) {
        const int64_t last = std::min(i + Tiles::kRows, F);
        const auto factors = factors_of<Tiles>(both.data(), i, F, F, i);
        for (int64_t d = 0; d < D; d += kWidth) {
          Tiles::template add<kWidth>(F, factors, rows + d, stride, sums);
          for (int64_t row = i; row < last; ++row)
            std::copy_n(sums + (row - i) * kWidth, std::min(kWidth, D - d),
                        output.data<Real>() + (b * F + row) * D + d);
        }
      }
    }
  });
}

bool is_wide() { return codegen::has_wide_registers(codegen::cpu_target()); }

void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  visit_dtype(call[0].dtype(), [&]<class Value>() {
    if constexpr (std::is_same_v<Value, double>) run<Value, NarrowTiles<double>>(call[0], outputs[0]);
    else if constexpr (!std::is_integral_v<Value>)
      is_wide() ? run<Value, WideTiles>(call[0], outputs[0]) : run<Value, NarrowTiles<float>>(call[0], outputs[0]);
  });
}
void kernel_backward(const OpCall& call, std::span<const Tensor> outputs) {
  if (outputs[0].dtype() == DType::f64) run_backward<NarrowTiles<double>>(call[0], call[1], outputs[0]);
  else if (is_wide()) run_backward<WideTiles>(call[0], call[1], outputs[0]);
  else run_backward<NarrowTiles<float>>(call[0], call[1], outputs[0]);
}

// x is [B, F, D]. The forward multiplies a pair once, the backward twice.
Cost cost_of_pairs(const Tensor& x, double products) {
  const double B = static_cast<double>(x.extents()[0]), F = static_cast<double>(x.extents()[1]),
               D = static_cast<double>(x.extents()[2]);
  const double pairs = B * F * std::max(F - 1, 0.0) / 2;
  return {.flops = 2 * products * pairs * D,
          .bytes = (products * B * F * D + pairs) * static_cast<double>(itemsize(x.dtype()))};
}

std::vector<Sample> samples() {
  return {{"f32", {facets::sample_tensor(1, {5, 4, 6})}, {}},
          {"f64", {facets::sample_tensor(2, {3, 7, 2}, DType::f64)}, {}},
          {"long", {facets::sample_tensor(3, {2, 3, 300})}, {}},
          {"bf16", {facets::sample_tensor(7, {4, 3, 5}, DType::bf16)}, {}},
          {"strided", {facets::strided_copy(facets::sample_tensor(4, {3, 3, 4}))}, {}},
          {"one_row", {facets::sample_tensor(5, {3, 1, 4})}, {}},
          {"empty", {facets::sample_tensor(6, {0, 4, 3})}, {}}};
}
std::vector<Sample> samples_backward() {
  return {{"f32", {facets::sample_tensor(1, {5, 6}), facets::sample_tensor(2, {5, 4, 6})}, {}},
          {"f64", {facets::sample_tensor(3, {3, 21}, DType::f64), facets::sample_tensor(4, {3, 7, 2}, DType::f64)}, {}},
          {"many_rows", {facets::sample_tensor(5, {1, 9870}), facets::sample_tensor(6, {1, 141, 3})}, {}},
          {"one_row", {facets::sample_tensor(7, {3, 0}), facets::sample_tensor(8, {3, 1, 4})}, {}},
          {"empty", {facets::sample_tensor(9, {0, 6}), facets::sample_tensor(10, {0, 4, 3})}, {}}};
}

const OpDef kPairwiseDots{
    .name = "pairwise_dots",
    .num_inputs = 1,
    .infer = infer,
    .reference = reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       if (c.needs(0) && c.grads[0].defined())
                         grads[0] = pairwise_dots_backward(c.grads[0], c.inputs[0]);
                     },
                 .saves_inputs = 0b1},
    .kernel = kernel,
    .sharding = [](const OpCall&) { return std::string("x[bFD] -> y[bP]"); },
    .cost = [](const OpCall& call) { return cost_of_pairs(call[0], 1); },
    .samples = samples,
};

const OpDef kPairwiseDotsBackward{
    .name = "pairwise_dots_backward",
    .num_inputs = 2,
    .infer = infer_backward,
    .reference = reference_backward,
    .gradient = {.none = "second derivatives of pairwise_dots are not supported; use bmm"},
    .kernel = kernel_backward,
    .sharding = [](const OpCall&) { return std::string("g[bP] x[bFD] -> d[bFD]"); },
    .cost = [](const OpCall& call) { return cost_of_pairs(call[1], 2); },
    .samples = samples_backward,
};

}  // namespace

Tensor pairwise_dots(const Tensor& x) { return call_op(kPairwiseDots, {}, x); }

Tensor pairwise_dots_backward(const Tensor& grad, const Tensor& x) {
  return call_op(kPairwiseDotsBackward, {}, grad, x);
}

}  // namespace tutti

TUTTI_OPS(pairwise_dots, &kPairwiseDots, &kPairwiseDotsBackward)
