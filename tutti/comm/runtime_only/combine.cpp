// The reductions of codegen/combine.h without the code generator: the same values in the same order, in loops of C++.
// They go through blocks, whose intermediate results stay in the first-level cache.
#include "tutti/codegen/combine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int64_t kBlock = 512;

// ---- elements -------------------------------------------------------------------------------------------------------

// The type in which values of T are combined. Booleans are bytes that hold 0 or 1.
template <class T>
using Compute =
    std::conditional_t<std::is_same_v<T, bool>, uint8_t, std::conditional_t<std::is_arithmetic_v<T>, T, float>>;

template <class T>
void load(const std::byte* from, int64_t count, Compute<T>* to) {
  if constexpr (std::is_arithmetic_v<T>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  } else {
    const T* values = reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < count; ++i) to[i] = to_float(values[i]);
  }
}

// As to_bfloat16(), which is no inline function: in a loop of its own the compiler makes vectors of it.
void store_bfloat16(const float* from, int64_t count, bfloat16* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
    to[i].bits = static_cast<uint16_t>(std::isnan(from[i]) ? nan : rounded);
  }
}

template <class T>
void store(const Compute<T>* from, int64_t count, std::byte* to) {
  T* values = reinterpret_cast<T*>(to);
  if constexpr (std::is_arithmetic_v<T>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    store_bfloat16(from, count, values);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, float16>) values[i] = to_float16(from[i]);
      else if constexpr (std::is_same_v<T, float8_e4m3fn>) values[i] = to_float8_e4m3fn(from[i]);
      else values[i] = to_float8_e5m2(from[i]);
    }
  }
}

// ---- one node of the tree -------------------------------------------------------------------------------------------

// Booleans are combined as bits.
ReduceKind pairwise(ReduceKind kind, DType dtype) {
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      return dtype == DType::boolean ? ReduceKind::bor : ReduceKind::sum;
    case ReduceKind::product:
    case ReduceKind::min:
      return dtype == DType::boolean ? ReduceKind::band : kind;
    case ReduceKind::max:
      return dtype == DType::boolean ? ReduceKind::bor : kind;
    default:
      return kind;
  }
}

// left[i] = op(left[i], right[i])
template <class C, class Op>
void each(int64_t count, C* left, const C* right, Op op) {
  for (int64_t i = 0; i < count; ++i) left[i] = op(left[i], right[i]);
}

// Integers wrap.
template <class C, class Op>
C wrapped(C a, C b, Op op) {
  if constexpr (std::is_integral_v<C>) return static_cast<C>(op(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else return op(a, b);
}

template <class C>
void join(ReduceKind kind, int64_t count, C* left, const C* right) {
  switch (kind) {
    case ReduceKind::sum:
      return each(count, left, right, [](C a, C b) { return wrapped(a, b, [](auto x, auto y) { return x + y; }); });
    case ReduceKind::product:
      return each(count, left, right, [](C a, C b) { return wrapped(a, b, [](auto x, auto y) { return x * y; }); });
    case ReduceKind::min:  // a NaN of either side stays
      return each(count, left, right, [](C a, C b) { return a < b || a != a ? a : b; });
    case ReduceKind::max:
      return each(count, left, right, [](C a, C b) { return a > b || a != a ? a : b; });
    default:
      break;
  }
  if constexpr (std::is_integral_v<C>) {
    switch (kind) {
      case ReduceKind::band:
        return each(count, left, right, [](C a, C b) { return static_cast<C>(a & b); });
      case ReduceKind::bor:
        return each(count, left, right, [](C a, C b) { return static_cast<C>(a | b); });
      case ReduceKind::bxor:
        return each(count, left, right, [](C a, C b) { return static_cast<C>(a ^ b); });
      default:
        break;
    }
  }
  throw InternalError(fmt::format("no loops combine values by {}", name_of(kind)));
}

// ---- the tree -------------------------------------------------------------------------------------------------------

struct Job {
  ReduceKind kind;
  DType dtype;
  size_t ranks;
  std::span<const std::byte* const> inputs;
  std::span<const double> factors;
  bool takes_parts = false;  // inputs are results of combine_part()
};

bool has_pairs(ReduceKind kind, DType dtype) { return kind == ReduceKind::avg && is_floating(dtype); }
bool has_pairs(const Job& job) { return has_pairs(job.kind, job.dtype); }

// The reduction of a block, and for averages of floats the value that all terms have: NaN where they differ. The
// average of equal floats is that float, which the quotient of their sum often is not.
template <class C>
struct Block {
  C values[kBlock];
  C terms[kBlock];
};

template <class T>
void load_leaf(const Job& job, size_t r, int64_t begin, int64_t count, Block<Compute<T>>& to) {
  using C = Compute<T>;
  const bool pairs = has_pairs(job);
  if (job.takes_parts && pairs) {
    const C* at = reinterpret_cast<const C*>(job.inputs[r]) + 2 * begin;
    for (int64_t i = 0; i < count; ++i) to.values[i] = at[2 * i], to.terms[i] = at[2 * i + 1];
    return;
  }
  if (job.takes_parts) {
    std::memcpy(to.values, job.inputs[r] + begin * static_cast<int64_t>(sizeof(C)),
                static_cast<size_t>(count) * sizeof(C));
    return;
  }
  load<T>(job.inputs[r] + begin * itemsize(job.dtype), count, to.values);
  if (pairs) std::copy_n(to.values, count, to.terms);
  if (job.kind == ReduceKind::premul_sum) {
    const auto factor = static_cast<C>(job.factors[r]);
    for (int64_t i = 0; i < count; ++i) to.values[i] = static_cast<C>(to.values[i] * factor);
  }
}

template <class T>
void reduce(const Job& job, size_t first, size_t ranks, int64_t begin, int64_t count, Block<Compute<T>>& to) {
  if (ranks == 1) return load_leaf<T>(job, first, begin, count, to);
  const size_t left = (ranks + 1) / 2;
  reduce<T>(job, first, left, begin, count, to);
  Block<Compute<T>> right;
  reduce<T>(job, first + left, ranks - left, begin, count, right);
  join(pairwise(job.kind, job.dtype), count, to.values, right.values);
  if (!has_pairs(job)) return;
  using C = Compute<T>;
  each(count, to.terms, right.terms, [](C a, C b) { return a == b ? a : static_cast<C>(NAN); });
}

template <class T>
void take_average(const Job& job, int64_t count, Block<Compute<T>>& block) {
  using C = Compute<T>;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<C>) {
      block.values[i] = static_cast<C>(block.values[i] / static_cast<int64_t>(job.ranks));
    } else {
      // Zeros of both signs are equal, and their sum has the sign of the average.
      const C term = block.terms[i], quotient = block.values[i] / static_cast<C>(job.ranks);
      block.values[i] = term == term && term != 0 ? term : quotient;
    }
  }
}

// Calls finish(begin, count, block) with the reduction of each block.
template <class T, class Finish>
void in_blocks(const Job& job, int64_t count, const Finish& finish) {
  Block<Compute<T>> block;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    reduce<T>(job, 0, job.inputs.size(), begin, n, block);
    finish(begin, n, block);
  }
}

void combine_whole(const Job& job, int64_t count, std::byte* out) {
  visit_dtype(job.dtype, [&]<class T>() {
    in_blocks<T>(job, count, [&](int64_t begin, int64_t n, Block<Compute<T>>& block) {
      if (job.kind == ReduceKind::avg) take_average<T>(job, n, block);
      store<T>(block.values, n, out + begin * itemsize(job.dtype));
    });
  });
}

}  // namespace

int64_t part_bytes(ReduceKind kind, DType dtype) {
  return itemsize(compute_dtype(dtype)) * (has_pairs(kind, dtype) ? 2 : 1);
}

void combine(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs, std::span<const double> factors,
             int64_t count, std::byte* out) {
  combine_whole({kind, dtype, inputs.size(), inputs, factors}, count, out);
}

void combine_part(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs,
                  std::span<const double> factors, int64_t count, std::byte* out) {
  const Job job{kind, dtype, inputs.size(), inputs, factors};
  visit_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    in_blocks<T>(job, count, [&](int64_t begin, int64_t n, const Block<C>& block) {
      C* to = reinterpret_cast<C*>(out + begin * part_bytes(kind, dtype));
      if (!has_pairs(job)) std::copy_n(block.values, n, to);
      for (int64_t i = 0; has_pairs(job) && i < n; ++i) to[2 * i] = block.values[i], to[2 * i + 1] = block.terms[i];
    });
  });
}

void combine_parts(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts, int ranks, int64_t count,
                   std::byte* out) {
  combine_whole({kind, dtype, static_cast<size_t>(ranks), parts, {}, true}, count, out);
}

}  // namespace tutti::comm
