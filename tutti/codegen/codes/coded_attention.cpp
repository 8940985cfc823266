#include "tutti/codegen/codes/coded_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/decode_lines.h"
#include "tutti/codegen/codes/softmax_row.h"
#include "tutti/codegen/codes/value_panel.h"
#include "tutti/codegen/codes/word_panel.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Queries whose scores are kept at once, and queries of a task, for which keys are unpacked once.
constexpr int64_t kBlock = 12, kTask = 252;
using codes::kKeyBlock;
// Keys beyond which an integer total over them might not fit 32 bits; more are added in pieces of so many.
constexpr int64_t kMostKeys = 32768;

// The tree over blocks of keys, aligned and anchored at key 0.
ContractionTree key_tree(int64_t keys) {
  ContractionTree tree;
  int32_t pending = 0;
  for (int64_t first = 0; first < keys; first += kKeyBlock) {
    tree.leaf_lengths.push_back(static_cast<int32_t>(std::min(kKeyBlock, keys - first)));
    const int64_t number = first / kKeyBlock + 1;
    const bool is_last = first + kKeyBlock >= keys;
    const int32_t merges = is_last ? pending : __builtin_ctzll(static_cast<uint64_t>(number));
    tree.merges.push_back(static_cast<uint8_t>(merges));
    pending += 1 - merges;
  }
  return tree;
}

// What is done with codes that are integers.
struct Integers {
  using Element = int16_t;
  static constexpr int64_t kColumns = codes::kWordColumns;
  static int64_t padded(int64_t k) { return codes::padded(k); }
  Integers(const CodedAttention& a)
      : a(a), q(a.codes, a.q.zero_point), k(a.codes, a.k.zero_point), v(a.codes, a.v.zero_point) {}

  void unpack_query(const uint8_t* row, int16_t* to) const { codes::unpack_row(row, a.D, q, to); }
  void pack_keys(const uint8_t* first, int64_t count, int16_t* panel) const {
    codes::pack_rows(first, a.k.position_stride, count, a.D, k, panel);
  }
  void pack_values(const uint8_t* first, int64_t columns, int64_t keys, int16_t* panel) const {
    codes::pack_columns(first, a.v.position_stride, columns, keys, v, panel);
  }
  // finish(row, totals of a panel's columns as two registers)
  template <class Finish>
  void scores(const int16_t* rows, int64_t stride, int64_t count, const int16_t* panel, Finish finish) const {
    codes::multiply_panel(rows, stride, count, panel, padded(a.D) / 2, [&](int64_t row, __m256i left, __m256i right) {
      finish(row, _mm256_cvtepi32_ps(left), _mm256_cvtepi32_ps(right));
    });
  }
  template <class Finish>
  void weighted_sums(const int16_t* rows, int64_t stride, int64_t count, int64_t keys, const int16_t* panel,
                     Finish finish) const {
    if (keys <= kMostKeys) {
      codes::multiply_panel(rows, stride, count, panel, padded(keys) / 2,
                            [&](int64_t row, __m256i left, __m256i right) {
                              finish(row, _mm256_cvtepi32_ps(left), _mm256_cvtepi32_ps(right));
                            });
      return;
    }
    std::vector<int64_t> totals(static_cast<size_t>(count * kColumns));
    for (int64_t first = 0; first < keys; first += kMostKeys) {
      codes::multiply_panel(rows + first, stride, count, panel + first * kColumns,
                            padded(std::min(kMostKeys, keys - first)) / 2,
                            [&](int64_t row, __m256i left, __m256i right) {
                              alignas(32) int32_t each[kColumns];
                              _mm256_store_si256(reinterpret_cast<__m256i*>(each), left);
                              _mm256_store_si256(reinterpret_cast<__m256i*>(each) + 1, right);
                              for (int64_t c = 0; c < kColumns; ++c)
                                totals[static_cast<size_t>(row * kColumns + c)] += each[c];
                            });
    }
    for (int64_t row = 0; row < count; ++row) {
      alignas(32) float each[kColumns];
      for (int64_t c = 0; c < kColumns; ++c)
        each[c] = static_cast<float>(totals[static_cast<size_t>(row * kColumns + c)]);
      finish(row, _mm256_load_ps(each), _mm256_load_ps(each + 8));
    }
  }
  // The code of a probability, less its zero point.
  void put_probabilities(__m256 p, int16_t* to) const {
    const __m256 zero = _mm256_set1_ps(static_cast<float>(a.p_zero_point));
    const __m256 code = codes::integer_codes(DType::u8, p, a.p_zero_point);
    const __m256i words = _mm256_cvtps_epi32(_mm256_sub_ps(code, zero));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  [[gnu::always_inline, TUTTI_WIDE]] void put_wide_probabilities(__m512 p, int16_t* to) const {
    const __m512 zero = _mm512_set1_ps(static_cast<float>(a.p_zero_point));
    const __m512 whole = _mm512_roundscale_ps(p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // NaN gives the second operand of the maximum.
    const __m512 above = _mm512_max_ps(_mm512_add_ps(whole, zero), _mm512_setzero_ps());
    const __m512 code = _mm512_min_ps(above, _mm512_set1_ps(255.0F));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_sub_ps(code, zero))));
  }

  const CodedAttention& a;
  const codes::ByteWords q, k, v;
};

// The same with codes of f8e4m3fn.
struct Floats {
  using Element = float;
  static constexpr int64_t kColumns = codes::kValueColumns;
  static int64_t padded(int64_t k) { return k; }
  Floats(const CodedAttention& a) : a(a), of_head(ContractionTree::halving(a.D)) {}

  void unpack_query(const uint8_t* row, float* to) const { codes::e4m3_row(row, a.D, to); }
  void pack_keys(const uint8_t* first, int64_t count, float* panel) const {
    codes::decode_block({first, a.k.position_stride, count, a.D, false}, codes::E4m3Lanes(),
                        {0, a.D, 0, count, panel, kColumns});
  }
  void pack_values(const uint8_t* first, int64_t columns, int64_t keys, float* panel) const {
    for (int64_t key = 0; key < keys; ++key) {
      const uint8_t* row = first + key * a.v.position_stride;
      for (int64_t half = 0; half < kColumns; half += 8)
        _mm256_storeu_ps(
            panel + key * kColumns + half,
            half < columns ? codes::e4m3_at(row + half, std::min<int64_t>(8, columns - half)) : _mm256_setzero_ps());
    }
  }
  template <class Finish>
  void scores(const float* rows, int64_t stride, int64_t count, const float* panel, Finish finish) const {
    codes::multiply_values(rows, stride, count, panel, of_head, finish);
  }
  template <class Finish>
  void weighted_sums(const float* rows, int64_t stride, int64_t count, int64_t keys, const float* panel,
                     Finish finish) const {
    codes::multiply_values(rows, stride, count, panel, key_tree(keys), finish);
  }
  void put_probabilities(__m256 p, float* to) const { _mm256_storeu_ps(to, codes::e4m3_rounded(p)); }
  // As codes::e4m3_rounded() does; probabilities have no sign.
  [[gnu::always_inline, TUTTI_WIDE]] void put_wide_probabilities(__m512 p, float* to) const {
    const __m512 within = _mm512_min_ps(_mm512_set1_ps(kLargestE4m3), p);  // NaN stays, as the second operand
    const __m512i exponent =
        _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(within), _mm512_set1_epi32(0x7f800000)),
                         _mm512_set1_epi32((127 - 6) << 23));
    const __m512 magic = _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32((20 << 23) | 0x400000)));
    const __m512 rounded = _mm512_sub_ps(_mm512_add_ps(within, magic), magic);
    _mm512_storeu_ps(to, _mm512_mask_mov_ps(rounded, _mm512_cmp_ps_mask(p, p, _CMP_UNORD_Q), p));
  }

  const CodedAttention& a;
  const ContractionTree of_head;
};

// Queries of one sequence that share a head of keys.
template <class Kind>
class HeadRun {
  using Element = typename Kind::Element;

 public:
  HeadRun(const CodedAttention& a, const Kind& kind, int64_t b, int64_t kv)
      : a_(a),
        kind_(kind),
        b_(b),
        kv_(kv),
        length_(a.lengths == nullptr ? a.Sk : a.lengths[b]),
        key_panel_(Kind::padded(a.D) * Kind::kColumns),
        value_panel_(Kind::padded(length_) * Kind::kColumns),
        score_stride_((a.Sk + kKeyBlock - 1) / kKeyBlock * kKeyBlock) {
    GemmWorkspaces& memory = gemm_workspaces();
    const int64_t panels = (length_ + Kind::kColumns - 1) / Kind::kColumns,
                  value_panels = (a.D + Kind::kColumns - 1) / Kind::kColumns;
    keys_ = reinterpret_cast<Element*>(
        memory.b.reserve((panels * key_panel_ + value_panels * value_panel_) * static_cast<int64_t>(sizeof(Element))));
    values_ = keys_ + panels * key_panel_;
    const auto* k = a.k.data + b * a.k.batch_stride + kv * a.k.head_stride;
    const auto* v = a.v.data + b * a.v.batch_stride + kv * a.v.head_stride;
    for (int64_t i = 0; i < panels; ++i)
      kind.pack_keys(k + i * Kind::kColumns * a.k.position_stride,
                     std::min(Kind::kColumns, length_ - i * Kind::kColumns), keys_ + i * key_panel_);
    for (int64_t i = 0; i < value_panels; ++i)
      kind.pack_values(v + i * Kind::kColumns, std::min(Kind::kColumns, a.D - i * Kind::kColumns), length_,
                       values_ + i * value_panel_);
    const int64_t row = Kind::padded(a.D), elements = kBlock * (row + score_stride_);
    std::byte* block =
        memory.block.reserve(elements * static_cast<int64_t>(sizeof(Element)) + kBlock * score_stride_ * 4);
    scores_ = reinterpret_cast<float*>(block);
    queries_ = reinterpret_cast<Element*>(block + kBlock * score_stride_ * 4);
    probabilities_ = queries_ + kBlock * row;
  }

  // Queries [begin, end) of the heads that share the keys.
  void run(int64_t begin, int64_t end) {
    const int64_t group = a_.Hq / a_.Hkv;
    for (int64_t h = kv_ * group; h < (kv_ + 1) * group; ++h)
      for (int64_t first = begin; first < end; first += kBlock) run_block(h, first, std::min(kBlock, end - first));
  }

 private:
  // Keys before the first one that query i does not see.
  int64_t seen(int64_t i) const {
    return std::clamp<int64_t>(a_.causal ? i + 1 + length_ - a_.Sq : length_, 0, length_);
  }

  void run_block(int64_t h, int64_t first, int64_t count) {
    const int64_t row = Kind::padded(a_.D), keys = seen(first + count - 1);
    for (int64_t i = 0; i < count; ++i)
      kind_.unpack_query(a_.q.data + b_ * a_.q.batch_stride + (first + i) * a_.q.position_stride + h * a_.q.head_stride,
                         queries_ + i * row);
    const __m256 factor = _mm256_set1_ps(a_.q.scale * a_.k.scale * a_.softmax_scale);
    for (int64_t key = 0; key < keys; key += Kind::kColumns) {
      kind_.scores(queries_, row, count, keys_ + key / Kind::kColumns * key_panel_,
                   [&](int64_t i, __m256 left, __m256 right) {
                     float* to = scores_ + i * score_stride_ + key;
                     _mm256_storeu_ps(to, _mm256_mul_ps(left, factor));
                     _mm256_storeu_ps(to + 8, _mm256_mul_ps(right, factor));
                   });
    }
    for (int64_t i = 0; i < count; ++i) make_probabilities(h, first + i, keys, i);
    for (int64_t d = 0; d < a_.D; d += Kind::kColumns) {
      kind_.weighted_sums(probabilities_, score_stride_, count, keys, values_ + d / Kind::kColumns * value_panel_,
                          [&](int64_t i, __m256 left, __m256 right) {
                            alignas(32) float each[Kind::kColumns];
                            _mm256_store_ps(each, left);
                            _mm256_store_ps(each + 8, right);
                            store(h, first + i, d, each);
                          });
    }
  }

  void make_probabilities(int64_t h, int64_t query, int64_t keys, int64_t i) {
    float* scores = scores_ + i * score_stride_;
    const int64_t own = seen(query), blocks = (keys + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
    if (a_.mask != nullptr) add_mask(h, query, own, scores);
    std::fill(scores + own, scores + blocks, -kInf);
    const float m = codes::largest_score(scores, blocks);
    const bool sees_any = !(m == -kInf);
    if (!sees_any) std::fill_n(scores, blocks, 0.0F);
    const float sum = sees_any ? codes::exponentials(scores, blocks, m) : 0.0F;
    const float inverse = sees_any ? 1.0F / (sum * a_.p_scale) : 0.0F;
    Element* to = probabilities_ + i * score_stride_;
    if (has_wide_registers(cpu_target())) put_wide(scores, blocks, inverse, to);
    else
      for (int64_t key = 0; key < blocks; key += 8)
        kind_.put_probabilities(_mm256_mul_ps(_mm256_loadu_ps(scores + key), _mm256_set1_ps(inverse)), to + key);
    // What is not seen has no weight, not that of a clamped code.
    std::fill(to + own, to + blocks, Element{0});
  }

  [[TUTTI_WIDE]] void put_wide(const float* scores, int64_t count, float inverse, Element* to) const {
    for (int64_t key = 0; key < count; key += 16)
      kind_.put_wide_probabilities(_mm512_mul_ps(_mm512_loadu_ps(scores + key), _mm512_set1_ps(inverse)), to + key);
  }

  void add_mask(int64_t h, int64_t query, int64_t keys, float* scores) const {
    const int64_t* strides = a_.mask_strides;
    const int64_t at = b_ * strides[0] + h * strides[1] + query * strides[2];
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t place = at + key * strides[3];
      if (a_.mask_dtype == DType::boolean) {
        if (!static_cast<const bool*>(a_.mask)[place]) scores[key] = -kInf;
        continue;
      }
      const float added = static_cast<const float*>(a_.mask)[place];
      scores[key] = added == -kInf ? -kInf : scores[key] + added;
    }
  }

  void store(int64_t h, int64_t query, int64_t d, const float* totals) const {
    const int64_t at = ((b_ * a_.Sq + query) * a_.Hq + h) * a_.D + d;
    const float factor = a_.p_scale * a_.v.scale, inverse = 1.0F / a_.y_scale;
    for (int64_t c = 0; c < std::min(Kind::kColumns, a_.D - d); ++c) {
      const float y = totals[c] * factor + 0.0F;  // no -0
      if (a_.y_dtype == DType::f32) static_cast<float*>(a_.y)[at + c] = y;
      else if (a_.y_dtype == DType::bf16) static_cast<bfloat16*>(a_.y)[at + c] = to_bfloat16(y);
      else if (a_.y_dtype == DType::f16) static_cast<float16*>(a_.y)[at + c] = to_float16(y);
      else write_code(a_.y_dtype, y * inverse, a_.y_zero_point, static_cast<uint8_t*>(a_.y) + at + c);
    }
  }

  const CodedAttention& a_;
  const Kind& kind_;
  const int64_t b_, kv_, length_;
  const int64_t key_panel_, value_panel_;  // elements of a panel
  const int64_t score_stride_;
  Element *keys_, *values_, *queries_, *probabilities_;
  float* scores_;
};

template <class Kind>
void attend(const CodedAttention& a, ThreadPool& pool) {
  const Kind kind(a);
  const int64_t parts = (a.Sq + kTask - 1) / kTask;
  pool.parallel_for(a.B * a.Hkv * parts, 1, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t head = begin / parts, part = begin % parts, last = std::min(parts, part + end - begin);
      HeadRun<Kind>(a, kind, head / a.Hkv, head % a.Hkv).run(part * kTask, std::min(a.Sq, last * kTask));
      begin += last - part;
    }
  });
}

}  // namespace

void coded_attention(const CodedAttention& a, ThreadPool& pool) {
  if (a.B * a.Sq * a.Hq * a.D == 0) return;
  if (a.codes == DType::f8e4m3fn) attend<Floats>(a, pool);
  else attend<Integers>(a, pool);
}

}  // namespace tutti::codegen
