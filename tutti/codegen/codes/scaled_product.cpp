#include "tutti/codegen/codes/scaled_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/codegen/codes/byte_dots.h"
#include "tutti/codegen/codes/code_rows.h"
#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/decode_lines.h"
#include "tutti/codegen/codes/few_rows.h"
#include "tutti/codegen/codes/word_panel.h"
#include "tutti/codegen/gemm/decoded.h"
#include "tutti/codegen/gemm/int8.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Rows of x that share a pass over W, and the columns of integers that few of them take together.
constexpr int64_t kRowsAtOnce = 1024;
constexpr int64_t kFewColumns = 8;
constexpr int64_t kFewRows = 4;  // of integers that are multiplied as they lie in memory
// Bytes of panels that stay in the second cache.
constexpr int64_t kPanelBytes = int64_t{1} << 17;
// Whether integers are multiplied by int8_gemm(): it copies rows of other lengths.
bool takes_gemm(int64_t m, int64_t k) {
  const Int8Items items = int8_items(cpu_target());
  return m >= (items == Int8Items::quads ? 24 : 64) && k % integers_of(items) == 0;
}
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 16;

// The columns of one W that are taken together.
struct Strip {
  const ScaledWeights* of;
  int64_t first, columns;
  bool has_more;  // whether another of this width follows
  const uint8_t* codes() const { return reinterpret_cast<const uint8_t*>(of->w) + first * of->w_stride; }
};

// Strips of `width` columns of all weights, in their order.
class Strips {
 public:
  Strips(std::span<const ScaledWeights> weights, int64_t width) : weights_(weights), width_(width) {
    for (const ScaledWeights& w : weights) count_ += (w.n + width - 1) / width;
  }
  int64_t count() const { return count_; }
  Strip operator[](int64_t index) const {
    size_t i = 0;
    for (; index >= (weights_[i].n + width_ - 1) / width_; ++i) index -= (weights_[i].n + width_ - 1) / width_;
    const int64_t first = index * width_, n = weights_[i].n;
    return {&weights_[i], first, std::min(width_, n - first), first + 2 * width_ <= n};
  }

 private:
  const std::span<const ScaledWeights> weights_;
  const int64_t width_;
  int64_t count_ = 0;
};

// Scales the totals of eight columns and stores those that exist.
class Store {
 public:
  Store(const ScaledProduct& p, int64_t first_row) : p_(p), first_row_(first_row) {}

  void operator()(const Strip& s, int64_t offset, int64_t row, float x_scale, __m256 totals) const {
    const ScaledWeights& w = *s.of;
    const int64_t count = std::min<int64_t>(8, s.columns - offset), column = s.first + offset;
    const int64_t at = (first_row_ + row) * w.n + column;
    if (count <= 0) return;
    if (count == 8 && (w.scale.stride == 0 || w.scale.stride == 1) && is_stored_together()) {
      const __m256 scale = w.scale.stride == 0 ? _mm256_set1_ps(w.scale[0]) : _mm256_loadu_ps(w.scale.data + column);
      __m256 y = _mm256_mul_ps(totals, _mm256_mul_ps(_mm256_set1_ps(x_scale), scale));
      if (w.bias != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(w.bias + column));
      if (store_eight(w, at, y)) return;
    }
    float values[8];
    _mm256_storeu_ps(values, totals);
    const float inverse = 1.0F / w.y_scale;
    for (int64_t i = 0; i < count; ++i) {
      float y = values[i] * (x_scale * w.scale[column + i]);
      if (w.bias != nullptr) y += w.bias[column + i];
      store(w, at + i, y, inverse);
    }
  }

 private:
  bool is_stored_together() const { return p_.y_dtype == DType::f32 || is_code(p_.y_dtype); }
  // False, and nothing, where a number has no code that a register can make.
  bool store_eight(const ScaledWeights& w, int64_t at, __m256 y) const {
    if (p_.y_dtype == DType::f32) {
      _mm256_storeu_ps(static_cast<float*>(w.y) + at, y);
      return true;
    }
    const __m256 over_scale = _mm256_mul_ps(y, _mm256_set1_ps(1.0F / w.y_scale));
    if (p_.y_dtype == DType::f8e4m3fn) {
      if (_mm256_movemask_ps(_mm256_cmp_ps(over_scale, over_scale, _CMP_UNORD_Q)) != 0) return false;
      const __m256 largest = _mm256_set1_ps(kLargestE4m3), smallest = _mm256_set1_ps(-kLargestE4m3);
      const uint64_t bytes =
          codes::low_bytes(codes::e4m3_codes(_mm256_min_ps(_mm256_max_ps(over_scale, smallest), largest)));
      std::memcpy(static_cast<uint8_t*>(w.y) + at, &bytes, sizeof(bytes));
      return true;
    }
    const __m256i wide = _mm256_cvtps_epi32(codes::integer_codes(p_.y_dtype, over_scale, w.y_zero_point));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    const __m128i bytes = p_.y_dtype == DType::u8 ? _mm_packus_epi16(words, words) : _mm_packs_epi16(words, words);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(static_cast<uint8_t*>(w.y) + at), bytes);
    return true;
  }
  void store(const ScaledWeights& w, int64_t at, float y, float inverse) const {
    switch (p_.y_dtype) {
      case DType::f32:
        static_cast<float*>(w.y)[at] = y;
        break;
      case DType::bf16:
        static_cast<bfloat16*>(w.y)[at] = to_bfloat16(y);
        break;
      case DType::f16:
        static_cast<float16*>(w.y)[at] = to_float16(y);
        break;
      default:
        write_code(p_.y_dtype, y * inverse, w.y_zero_point, static_cast<uint8_t*>(w.y) + at);
    }
  }

  const ScaledProduct& p_;
  const int64_t first_row_;
};

template <int kX>
void multiply_few(const ScaledProduct& p, const CodeRows& x, const Store& store, const Strip& s) {
  if constexpr (kX > 1) {
    if (p.m < kX) return multiply_few<kX - 1>(p, x, store, s);
  }
  __m256i sums[kX];
  codes::dot_rows<kX>(s.codes(), s.of->w_stride, s.columns, p.k, codes::SignedWords(), x.words, x.stride, sums);
  for (int i = 0; i < kX; ++i) store(s, 0, i, x.scales[i], _mm256_cvtepi32_ps(sums[i]));
}

// Strips of at most the width of a panel, unpacked and multiplied by all rows in turn, so that a row is in the first
// cache while it is multiplied by several.
void multiply_words(const ScaledProduct& p, const CodeRows& x, const Store& store, const Strips& strips, int64_t begin,
                    int64_t end) {
  const int64_t words = codes::padded(p.k) * codes::kWordColumns;
  const int64_t together = std::max<int64_t>(1, kPanelBytes / std::max<int64_t>(1, words * 2));
  auto* panels = reinterpret_cast<int16_t*>(gemm_workspaces().b.reserve(std::min(together, end - begin) * words * 2));
  for (int64_t first = begin; first < end; first += together) {
    const int64_t last = std::min(end, first + together);
    for (int64_t i = first; i < last; ++i) {
      const Strip s = strips[i];
      codes::pack_rows(s.codes(), s.of->w_stride, s.columns, p.k, codes::SignedWords(), panels + (i - first) * words);
    }
    const int64_t rows = codes::word_rows();
    for (int64_t row = 0; row < p.m; row += rows) {
      for (int64_t i = first; i < last; ++i) {
        const Strip s = strips[i];
        codes::multiply_panel(x.words + row * x.stride, x.stride, std::min(rows, p.m - row),
                              panels + (i - first) * words, codes::padded(p.k) / 2,
                              [&](int64_t r, __m256i left, __m256i right) {
                                const float scale = x.scales[row + r];
                                store(s, 0, row + r, scale, _mm256_cvtepi32_ps(left));
                                store(s, 8, row + r, scale, _mm256_cvtepi32_ps(right));
                              });
      }
    }
  }
}

// Values of few rows.
void multiply_few_values(const ScaledProduct& p, const CodeRows& x, const Store& store, const Strips& strips,
                         const codes::FewRows& few, const ContractionTree& tree, int64_t begin, int64_t end) {
  const int64_t width = codes::few_columns(p.m);
  for (int64_t i = begin; i < end; ++i) {
    const Strip s = strips[i];
    float totals[codes::kWideRows * codes::kMostFewColumns];
    codes::multiply_few({s.codes(), s.of->w_stride, s.columns, p.k, s.has_more}, codes::E4m3Lanes(), few, tree, totals);
    for (int64_t r = 0; r < p.m; ++r)
      for (int64_t j = 0; j < s.columns; j += 8) store(s, j, r, x.scales[r], _mm256_loadu_ps(totals + r * width + j));
  }
}

// Memory of rows of x, beside what int8_gemm() packs.
struct RowMemory {
  Workspace rows, bytes, few;
};
RowMemory& row_memory() {
  thread_local RowMemory memory;
  return memory;
}

// Words and `shift` as bytes.
void to_bytes(const int16_t* words, int64_t k, int32_t shift, uint8_t* to) {
  for (int64_t p = 0; p < k; ++p) to[p] = static_cast<uint8_t>(words[p] + shift);
}

// The rows of x, `shift` more than their words, as bytes in memory of this thread.
const uint8_t* bytes_of(const ScaledProduct& p, const CodeRows& x, int32_t shift, int64_t stride, ThreadPool& pool) {
  auto* bytes = reinterpret_cast<uint8_t*>(row_memory().bytes.reserve(p.m * stride));
  pool.parallel_for(p.m, kWorthATask / (p.k + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      to_bytes(x.words + row * x.stride, p.k, shift, bytes + row * stride);
      std::fill(bytes + row * stride + p.k, bytes + (row + 1) * stride, uint8_t{0});
    }
  });
  return bytes;
}

// Integers on dot units, for what int8_gemm() would copy or does slowly.
void multiply_dots(const ScaledProduct& p, const CodeRows& x, const Store& store, ThreadPool& pool) {
  const int32_t offset = p.x_zero_point + (p.x_codes == DType::u8 ? 0 : 128);
  const int64_t stride = codes::padded_bytes(p.k);
  const codes::ByteRows rows{bytes_of(p, x, offset, stride, pool), stride, p.m, offset};
  const Strips strips(p.weights, codes::kDotColumns);
  const int64_t work = p.m * (p.k + 1) * codes::kDotColumns;
  pool.parallel_for(strips.count(), kWorthATask / work + 1, [&](int64_t begin, int64_t end) {
    auto* const sums = reinterpret_cast<int32_t*>(gemm_workspaces().b.reserve(p.m * codes::kDotColumns * 4));
    for (int64_t i = begin; i < end; ++i) {
      const Strip s = strips[i];
      codes::dot_bytes({s.codes(), s.of->w_stride, s.columns, p.k}, rows, sums);
      for (int64_t r = 0; r < p.m; ++r)
        for (int64_t j = 0; j < codes::kDotColumns; j += 8) {
          const auto* at = reinterpret_cast<const __m256i*>(sums + r * codes::kDotColumns + j);
          store(s, j, r, x.scales[r], _mm256_cvtepi32_ps(_mm256_loadu_si256(at)));
        }
    }
  });
}

// The sum of the codes of each row of W times `factor`; as long as the sums of products they fit 32 bits.
std::vector<int32_t> row_sums(const ScaledWeights& w, int64_t k, int32_t factor, ThreadPool& pool) {
  std::vector<int32_t> sums(static_cast<size_t>(w.n));
  if (factor == 0) return sums;
  pool.parallel_for(w.n, kWorthATask / (k + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const auto* codes = reinterpret_cast<const int8_t*>(w.w) + j * w.w_stride;
      int32_t sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += codes[p];
      sums[static_cast<size_t>(j)] = sum * factor;
    }
  });
  return sums;
}

// Eight integers or numbers, zeros where fewer are there.
__m256i eight_of(const int32_t* p, int64_t count) {
  if (count >= 8) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  int32_t all[8] = {};
  std::copy_n(p, count, all);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(all));
}
__m256 eight_of(const float* p, int64_t count) {
  return count >= 8 ? _mm256_loadu_ps(p) : simd::load_part<float>(p, count);
}

// Stores a block of a product with w; totals(eight of its elements, column, columns from there on) makes them f32.
template <class T, class Totals>
void store_block(const ScaledWeights& w, const CodeRows& x, const Store& store, const GemmBlock& block, Totals totals) {
  const int64_t end = block.first_column + block.columns;
  const Strip columns{&w, 0, end, false};
  for (int64_t i = 0; i < block.rows; ++i) {
    const T* row = static_cast<const T*>(block.data) + i * block.row_stride;
    const float scale = x.scales[block.first_row + i];
    for (int64_t j = block.first_column; j < end; j += 8)
      store(columns, j, block.first_row + i, scale,
            totals(eight_of(row + (j - block.first_column), end - j), j, end - j));
  }
}

// Values of many rows.
void multiply_values(const ScaledProduct& p, const CodeRows& x, const Store& store, const ContractionTree& tree,
                     ThreadPool& pool) {
  for (const ScaledWeights& w : p.weights) {
    const auto* codes = reinterpret_cast<const uint8_t*>(w.w);
    const auto decode = [&](const GemmDecodedBlock& block) {
      codes::decode_block({codes + block.first_column * w.w_stride, w.w_stride, block.columns, p.k, false},
                          codes::E4m3Lanes(), block);
    };
    const auto finish = [&](const GemmBlock& block) {
      store_block<float>(w, x, store, block, [](__m256 totals, int64_t, int64_t) { return totals; });
    };
    decoded_gemm({p.m, w.n, p.k, {x.values, DType::f32, x.stride, 1}, tree}, decode, finish, pool);
  }
}

// Integers of many rows. Codes of x enter as signed bytes, and what those have too much is taken off the totals.
void multiply_bytes(const ScaledProduct& p, const CodeRows& x, const Store& store, ThreadPool& pool) {
  const int32_t shift = p.x_zero_point - (p.x_codes == DType::u8 ? 128 : 0);
  const auto* bytes = reinterpret_cast<const int8_t*>(bytes_of(p, x, shift, p.k, pool));
  for (const ScaledWeights& w : p.weights) {
    const std::vector<int32_t> excess = row_sums(w, p.k, shift, pool);
    const auto finish = [&](const GemmBlock& block) {
      store_block<int32_t>(w, x, store, block, [&](__m256i sums, int64_t column, int64_t count) {
        return _mm256_cvtepi32_ps(_mm256_sub_epi32(sums, eight_of(excess.data() + column, count)));
      });
    };
    const GemmConsumer consumer(finish);
    int8_gemm(p.m, w.n, p.k, {bytes, DType::i8, p.k, 1}, {w.w, DType::i8, 1, w.w_stride}, {nullptr, DType::i32, w.n},
              {.pool = &pool, .consumer = &consumer});
  }
}

}  // namespace

void scaled_product(const ScaledProduct& all, ThreadPool& pool) {
  TUTTI_ASSERT(all.codes == DType::f8e4m3fn || all.k <= kMostIntegerTerms, "scaled_product: {} terms", all.k);
  const ContractionTree tree = ContractionTree::halving(all.codes == DType::f8e4m3fn ? all.k : 0);
  TUTTI_ASSERT(tree.depth() <= codes::kMostPending, "scaled_product: a tree of depth {}", tree.depth());
  // Without terms there is nothing for gemm() to do.
  const bool is_integer = all.codes == DType::i8;
  const int64_t most_few = is_integer ? kFewRows : codes::most_few_rows();
  const int64_t at_once = all.k == 0 ? most_few : kRowsAtOnce;
  for (int64_t first = 0; first < all.m; first += at_once) {
    ScaledProduct p = all;
    p.m = std::min(at_once, all.m - first);
    const CodeRows x = code_rows(all, first, p.m, row_memory().rows, pool);
    const Store store(all, first);
    const bool is_few = p.m <= most_few;
    if (is_integer && takes_gemm(p.m, p.k)) {
      multiply_bytes(p, x, store, pool);
      continue;
    }
    if (is_integer && int8_items(cpu_target()) == Int8Items::quads) {
      multiply_dots(p, x, store, pool);
      continue;
    }
    if (!is_integer && !is_few) {
      multiply_values(p, x, store, tree, pool);
      continue;
    }
    const int64_t width = !is_few ? codes::kWordColumns : is_integer ? kFewColumns : codes::few_columns(p.m);
    const Strips strips(p.weights, width);
    codes::FewRows few{};
    if (!is_integer) few = codes::few_rows(x.values, x.stride, p.m, p.k, row_memory().few);
    pool.parallel_for(strips.count(), kWorthATask / (p.m * (p.k + 1) * width) + 1, [&](int64_t begin, int64_t end) {
      if (!is_integer) {
        multiply_few_values(p, x, store, strips, few, tree, begin, end);
      } else if (is_few) {
        for (int64_t i = begin; i < end; ++i) multiply_few<kFewRows>(p, x, store, strips[i]);
      } else {
        multiply_words(p, x, store, strips, begin, end);
      }
    });
  }
}

}  // namespace tutti::codegen
