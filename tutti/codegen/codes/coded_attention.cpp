#include "tutti/codegen/codes/coded_attention.h"

#include <algorithm>
#include <limits>

#include "tutti/codegen/codes/attention_kinds.h"
#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/softmax_row.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using codes::kBlock, codes::kKeyBlock;
constexpr float kInf = std::numeric_limits<float>::infinity();
// Queries of a task, for which keys are unpacked once.
constexpr int64_t kTask = 252;

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
        key_panel_(Kind::panel_size(a.D)),
        value_panel_(Kind::panel_size(length_)),
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
    const int64_t row = Kind::row_size(a.D), elements = kBlock * (row + score_stride_);
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
    const int64_t row = Kind::row_size(a_.D), keys = seen(first + count - 1);
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
    if (has_wide_registers(cpu_target())) {
      put_wide(scores, blocks, inverse, to);
    } else if constexpr (!Kind::kIsWide) {
      for (int64_t key = 0; key < blocks; key += 8)
        kind_.put_probabilities(_mm256_mul_ps(_mm256_loadu_ps(scores + key), _mm256_set1_ps(inverse)), to + key);
    }
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
  if (a.codes == DType::f8e4m3fn) attend<codes::Floats>(a, pool);
  else if (codes::Quads::has(a)) attend<codes::Quads>(a, pool);
  else attend<codes::Integers>(a, pool);
}

}  // namespace tutti::codegen
