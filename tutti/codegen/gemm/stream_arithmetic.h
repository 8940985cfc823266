// The arithmetic of streams: how elements of B and of x are loaded and added to sums. Private to stream.cpp.
//
// An item is one k, or a pair of neighbouring k of two bf16 operands (numerics contract, N3). x is packed as for the
// tiles of its kind.
#pragma once

#include <type_traits>

#include "tutti/codegen/gemm/simd.h"
#include "tutti/codegen/gemm/tile_kind.h"
#include "tutti/runtime/fp_environment.h"

// Before a function: its calls stay calls, into which the compiler does not look. Clang knows only the first half.
#if __has_cpp_attribute(gnu::noipa)
#define TUTTI_OPAQUE_CALL [[gnu::noipa]]
#else
#define TUTTI_OPAQUE_CALL [[gnu::noinline]]
#endif

namespace tutti::codegen::stream {

// Denormals are read and written as zero while it lives. What computes meanwhile must be an opaque call: compilers move
// arithmetic across the instructions that change this mode, but not a call that accesses memory across an assembly that
// may do so as well.
class FlushDenormals {
 public:
  FlushDenormals() {
    _mm_setcsr(before_ | kFlushDenormals);
    asm volatile("" ::: "memory");
  }
  ~FlushDenormals() {
    asm volatile("" ::: "memory");
    _mm_setcsr(before_);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_ = _mm_getcsr();
};
struct KeepDenormals {};

// f64 and f32 sums of elements of any type.
template <class T, class S>
struct Elements {
  using Sum = T;
  using Stored = S;
  using Block = simd::Block<T>;
  using Vector = typename Block::Vector;
  using Mode = KeepDenormals;
  static constexpr TileKind kKind = sizeof(T) == 8 ? TileKind::f64 : TileKind::f32;
  static constexpr int64_t kPerItem = 1;  // k
  static constexpr int64_t kXRows = 1;    // rows of packed x
  // Whether there is a form in registers of 512 bits: operands of two dtypes are rare.
  static constexpr bool kHasWideLeaves = std::is_same_v<S, float>;

  // Neighbouring items of a row.
  static typename Block::Half load_items(const S* p) { return Block::load_half(p); }
  static Vector add_items(Vector items, const T* x, int64_t, Vector sum) {
    return Block::fma(items, Block::load(x), sum);
  }

  // The items of neighbouring columns, and an item of x for all of them.
  using Columns = Vector;
  using Factor = Vector;
  template <class Load>
  static Columns columns(const S* p, int64_t, Load load) {
    return load(p);
  }
  static Factor factor(const T* x, int64_t) { return Block::splat(*x); }
  static Vector add(const Factor& x, const Columns& c, Vector sum) { return Block::fma(x, c, sum); }
};

struct BfloatPairs {
  using Sum = float;
  using Stored = bfloat16;
  using Block = simd::Block<float>;
  using Vector = Block::Vector;
  static constexpr int64_t kPerItem = 2;
  static constexpr bool kHasWideLeaves = true;

  static Block::Half load_items(const bfloat16* p) { return _mm_loadu_ps(reinterpret_cast<const float*>(p)); }
  static Vector odd(Vector pairs) {
    return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int32_t>(0xffff0000u))));
  }
  static Vector even(Vector pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16)); }
};

// On dot units: the packed x of bf16_pairs, whose pairs stand in memory of floats.
struct PairsOnUnits : BfloatPairs {
  using Mode = KeepDenormals;
  static constexpr TileKind kKind = TileKind::bf16_pairs;
  static constexpr int64_t kXRows = 1;

  // Not an intrinsic: only this instruction, in code for any processor, is for those that have it.
  static Vector dot(Vector a, Vector b, Vector sum) {
    asm("vdpbf16ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
  }
  static Vector add_items(Vector items, const float* x, int64_t, Vector sum) { return dot(items, Block::load(x), sum); }

  using Columns = Vector;
  using Factor = Vector;
  static Vector low_half(Vector v) { return _mm256_castsi256_ps(_mm256_srli_epi32(_mm256_castps_si256(v), 16)); }
  template <class Load>
  static Columns columns(const bfloat16* p, int64_t stride, Load load) {
    return _mm256_or_ps(low_half(load(p)), load(p + stride));
  }
  static Factor factor(const float* x, int64_t) { return Block::splat(*x); }
  static Vector add(Factor x, Columns c, Vector sum) { return dot(c, x, sum); }
  // The last k of an odd leaf: elements of columns, and of x as it is packed.
  static Vector add_alone(Vector elements, Vector x, Vector sum) { return dot(low_half(elements), x, sum); }
};

// With f32 arithmetic: the packed x of bf16_chain.
struct PairsByFma : BfloatPairs {
  using Mode = FlushDenormals;
  static constexpr TileKind kKind = TileKind::bf16_chain;
  static constexpr int64_t kXRows = 2;

  static Vector add_items(Vector items, const float* x, int64_t x_stride, Vector sum) {
    sum = Block::fma(odd(items), Block::load(x), sum);
    return Block::fma(even(items), Block::load(x + x_stride), sum);
  }

  struct Columns {
    Vector even, odd;
  };
  struct Factor {
    Vector odd, even;
  };
  template <class Load>
  static Columns columns(const bfloat16* p, int64_t stride, Load load) {
    return {load(p), load(p + stride)};
  }
  static Factor factor(const float* x, int64_t x_stride) { return {Block::splat(*x), Block::splat(x[x_stride])}; }
  static Vector add(const Factor& x, const Columns& c, Vector sum) {
    return Block::fma(x.even, c.even, Block::fma(x.odd, c.odd, sum));
  }
  static Vector add_alone(Vector elements, Vector x, Vector sum) { return Block::fma(elements, x, sum); }
};

}  // namespace tutti::codegen::stream
