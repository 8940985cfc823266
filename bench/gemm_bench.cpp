#include "bench/gemm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bench/fma_peak.h"
#include "bench/measure.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/codegen/gemm/int8.h"
#include "tutti/core/error.h"
#include "tutti/ops/packed_linear.h"

namespace tutti::bench {
namespace {

using codegen::ContractionTree;

// More than third-level caches of today hold.
constexpr int64_t kBeyondCaches = int64_t{512} << 20;

// Memory as tensors have it: `copies` of the same elements, one behind the other.
class Elements {
 public:
  Elements(int64_t count, DType dtype, int64_t copies)
      : size_(count * itemsize(dtype)),
        stride_((size_ + 63) / 64 * 64),
        memory_(Tensor::empty({stride_ * copies}, DType::u8)) {
    std::memset(data(), 0, static_cast<size_t>(stride_ * copies));  // else the first calls wait for pages
  }
  std::byte* data(int64_t copy = 0) const { return static_cast<std::byte*>(memory_.raw_data()) + copy * stride_; }
  int64_t size() const { return size_; }

 private:
  int64_t size_, stride_;
  Tensor memory_;
};

Elements random_elements(int64_t count, DType dtype, int64_t copies, uint64_t state) {
  Elements bytes(count, dtype, copies);
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto word = static_cast<int32_t>(state >> 32);
    if (dtype == DType::i8) bytes.data()[i] = static_cast<std::byte>(word >> 24);
    else store_from_double(bytes.data() + i * itemsize(dtype), dtype, static_cast<double>(word) * 0x1p-31);
  }
  for (int64_t copy = 1; copy < copies; ++copy)
    std::memcpy(bytes.data(copy), bytes.data(), static_cast<size_t>(bytes.size()));
  return bytes;
}

int32_t integer_element(int64_t k, const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_stride) {
  int64_t sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<int8_t>(a[i * a_stride]) * static_cast<int8_t>(b[i * b_stride]);
  return static_cast<int32_t>(sum);
}

// The chain of one leaf by the definition: of two bf16 operands the odd element of each pair comes first. Values of a
// benchmark are far from denormals.
template <class T>
T chain(int32_t length, const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_stride, DType dtype) {
  T sum = T{-0.0};
  for (int32_t i = 0; i < length; ++i) {
    const int32_t k = dtype == DType::bf16 && (i ^ 1) < length ? i ^ 1 : i;
    sum = std::fma(static_cast<T>(load_as_double(a + k * a_stride * itemsize(dtype), dtype)),
                   static_cast<T>(load_as_double(b + k * b_stride * itemsize(dtype), dtype)), sum);
  }
  return sum;
}

// One element by the definition: chains of multiply-adds, combined in postfix order.
template <class T>
T element(const ContractionTree& tree, const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_stride,
          DType dtype) {
  std::vector<T> pending;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    T sum = chain<T>(tree.leaf_lengths[leaf], a, a_stride, b, b_stride, dtype);
    a += tree.leaf_lengths[leaf] * a_stride * itemsize(dtype);
    b += tree.leaf_lengths[leaf] * b_stride * itemsize(dtype);
    for (int merges = tree.merges[leaf]; merges > 0; --merges) {
      sum = pending.back() + sum;
      pending.pop_back();
    }
    pending.push_back(sum);
  }
  return pending.back();
}

// Within what rounding may make of a sum in any order.
bool is_near(int64_t k, const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_stride, DType dtype,
             double got) {
  double sum = 0, size = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double term = load_as_double(a + i * a_stride * itemsize(dtype), dtype) *
                        load_as_double(b + i * b_stride * itemsize(dtype), dtype);
    sum += term;
    size += std::abs(term);
  }
  const double unit = dtype == DType::f64 ? 0x1p-53 : 0x1p-24, stored = dtype == DType::bf16  ? 0x1p-8
                                                                        : dtype == DType::f16 ? 0x1p-11
                                                                                              : unit;
  return std::abs(got - sum) <= static_cast<double>(k) * unit * size + stored * std::abs(sum);
}

}  // namespace

GemmTiming time_gemm(const GemmCase& p) {
  const NumericsScope mode(p.mode);
  const DType c_dtype = p.dtype == DType::i8 ? DType::i32 : p.dtype;
  const int64_t set_bytes = p.batch * ((p.m + p.n) * p.k * itemsize(p.dtype) + p.m * p.n * itemsize(c_dtype));
  const int64_t copies = p.is_cold ? kBeyondCaches / set_bytes + 1 : 1;
  const Elements a = random_elements(p.batch * p.m * p.k, p.dtype, copies, 1);
  const Elements b = random_elements(p.batch * p.k * p.n, p.dtype, copies, 2);
  const Elements c(p.batch * p.m * p.n, c_dtype, copies);
  const int64_t row_stride = p.b_transposed ? 1 : p.n, column_stride = p.b_transposed ? p.k : 1;
  const int64_t a_row_stride = p.a_transposed ? 1 : p.k, a_column_stride = p.a_transposed ? p.m : 1;
  Tensor x, packed, y;
  if (p.b_packed) {
    TUTTI_CHECK(p.batch == 1 && p.b_transposed && !p.a_transposed && !p.is_cold && p.dtype != DType::i8,
                "bench gemm: a packed B is the transposed one of a single product of floats, with A as it is and warm");
    x = Tensor::from_memory(a.data(), {p.m, p.k}, p.dtype, [] {});
    packed = pack_weight(Tensor::from_memory(b.data(), {p.n, p.k}, p.dtype, [] {}));
  }
  int64_t call = 0;
  const auto run = [&] {
    if (p.b_packed) {
      y = packed_linear(x, packed, p.n);
      return;
    }
    const int64_t copy = call++ % copies;
    std::byte *left = a.data(copy), *right = b.data(copy), *result = c.data(copy);
    if (p.dtype == DType::i8) {
      for (int64_t x = 0; x < p.batch; ++x)
        codegen::int8_gemm(p.m, p.n, p.k, {left + x * p.m * p.k, p.dtype, a_row_stride, a_column_stride},
                           {right + x * p.k * p.n, p.dtype, row_stride, column_stride},
                           {result + x * p.m * p.n * itemsize(c_dtype), c_dtype, p.n});
      return;
    }
    codegen::batched_gemm({p.batch, p.m * p.k, p.k * p.n, p.m * p.n}, p.m, p.n, p.k,
                          {left, p.dtype, a_row_stride, a_column_stride}, {right, p.dtype, row_stride, column_stride},
                          {result, p.dtype, p.n}, ContractionTree::halving(p.k));
  };
  const Timing time = measure(run);
  std::string how;
  if (p.dtype != DType::i8 && !p.b_packed) {
    how = codegen::describe_gemm(p.m, p.n, p.k, {a.data(), p.dtype, a_row_stride, a_column_stride},
                                 {b.data(), p.dtype, row_stride, column_stride}, {c.data(), p.dtype, p.n},
                                 ContractionTree::halving(p.k));
  }

  if (p.b_packed) std::memcpy(c.data(), y.raw_data(), static_cast<size_t>(c.size()));
  bool verified = true;
  const ContractionTree tree = ContractionTree::halving(p.k);
  const int64_t elements = p.batch * p.m * p.n;
  for (int64_t e = 0; e < elements; e += std::max<int64_t>(elements / 61, 1)) {
    const int64_t x = e / (p.m * p.n), i = e / p.n % p.m, j = e % p.n, size = itemsize(p.dtype);
    const std::byte* row = a.data() + (x * p.m * p.k + i * a_row_stride) * size;
    const std::byte* column = b.data() + (x * p.k * p.n + j * column_stride) * size;
    if (p.dtype == DType::i8) {
      const int32_t expected = integer_element(p.k, row, a_column_stride, column, row_stride);
      verified &= std::memcmp(&expected, c.data() + e * itemsize(c_dtype), sizeof(expected)) == 0;
      continue;
    }
    if (p.mode == NumericsMode::fast) {
      verified &=
          is_near(p.k, row, a_column_stride, column, row_stride, p.dtype, load_as_double(c.data() + e * size, p.dtype));
      continue;
    }
    std::byte expected[8];
    store_from_double(expected, p.dtype,
                      p.dtype == DType::f64 ? element<double>(tree, row, a_column_stride, column, row_stride, p.dtype)
                                            : element<float>(tree, row, a_column_stride, column, row_stride, p.dtype));
    verified &= std::memcmp(expected, c.data() + e * size, static_cast<size_t>(size)) == 0;
  }
  const double flops = 2.0 * static_cast<double>(elements * p.k);
  const double nbytes = static_cast<double>(a.size() + b.size() + c.size());
  const double peak = p.dtype == DType::bf16 ? bf16_peak_gflops()
                      : p.dtype == DType::i8 ? int_mm_peak_gops()
                                             : fma_peak_gflops();
  return {p, time.min_us, time.median_us, flops / time.min_us * 1e-3, peak, nbytes / time.min_us * 1e-3, verified, how};
}

std::string layout_text(const GemmCase& p) {
  return fmt::format("{}{}{}", p.a_transposed ? " A^T" : "",
                     p.b_packed       ? " packed"
                     : p.b_transposed ? " B^T"
                                      : "",
                     p.is_cold ? " cold" : "");
}

std::string to_line(const GemmTiming& t) {
  const GemmCase& p = t.problem;
  const std::string size = fmt::format("{}{}x{}x{} {}{}", p.batch > 1 ? fmt::format("{} of ", p.batch) : "", p.m, p.n,
                                       p.k, name_of(p.dtype), layout_text(p));
  return fmt::format(
      "{:<28} min {:>9.1f} us  median {:>9.1f} us  {:>7.1f} GFLOP/s ({:>5.1f} % of {:.1f})  {:>6.1f} GB/s{}{}{}", size,
      t.min_us, t.median_us, t.gflops, 100.0 * t.gflops / t.peak_gflops, t.peak_gflops, t.gbytes_per_s,
      t.how.empty() ? "" : "  ", t.how, t.verified ? "" : "  WRONG");
}

}  // namespace tutti::bench
