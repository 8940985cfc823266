// The geometry of attention: sizes, rows of queries, heads of keys, key bounds. A row of a group is a query of one
// head; rows are numbered by position, then by head within the group.
#pragma once

#include <vector>

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

struct Sizes {
  int64_t B, Sq, Sk, Hq, Hkv, D, G;
  int64_t rows() const { return Sq * G; }  // of a group
};
Sizes sizes_of(const Tensor& q, const Tensor& k);
// The sizes of a forward call, whose keys may be pages (KeySource).
Sizes forward_sizes(const OpCall& call);

// The rows of one group of a [B, Sq, Hq, X] tensor.
struct Rows {
  void* data;
  DType dtype;
  int64_t position_stride, head_stride, element_stride;
  int64_t group, length;  // heads of the group, X

  // Rows [begin, begin + count) as dense rows of `width` elements, widened; kPackSlack elements behind them are
  // written.
  void gather(int64_t begin, int64_t count, DType compute, void* dense, int64_t width) const;
  // The reverse, rounded once.
  void scatter(const void* dense, DType compute, int64_t width, int64_t begin, int64_t count) const;
  // The same rows, of elements [begin, begin + count) only.
  Rows part(int64_t begin, int64_t count) const;

 private:
  template <class Visit>
  void for_runs(int64_t begin, int64_t count, Visit visit) const;
  char* at(int64_t row) const;
};
Rows rows_of(const Tensor& t, int64_t b, int64_t kv, int64_t group);
// The rows of a [B, Sq, Hq] tensor, of one element each.
Rows statistics_of(const Tensor& t, int64_t b, int64_t kv, int64_t group);
// The rows of a mask [B | 1, Hq | 1, Sq | 1, Sk], of Sk elements each.
Rows mask_rows(const Tensor& mask, int64_t b, int64_t kv, const Sizes& n);

// The dtype in which a product of elements of two dtypes is computed, which widen to `compute`: as
// GemmProblem::compute.
inline DType product_compute(DType a, DType b, DType compute) {
  return compute == DType::f32 && a == DType::bf16 && b == DType::bf16 ? DType::bf16 : compute;
}

// One head of keys or values.
struct Head {
  void* data;
  DType dtype;
  int64_t key_stride, element_stride;
  char* at(int64_t key) const { return static_cast<char*>(data) + key * key_stride * itemsize(dtype); }
  // Prefetches keys [begin, end) of `length` elements. Keys of one head are far apart in memory, with those of other
  // heads between them, a pattern that hardware prefetchers do not detect.
  void prefetch(int64_t begin, int64_t end, int64_t length) const;
};
Head head_of(const Tensor& t, int64_t b, int64_t h);

// The keys or the values of a forward call: a tensor [B, Sk, Hkv, D], or pages [P, Hkv, page, D] whose order in each
// sequence a table [B, W] gives. Pages of codes have scales [P, Hkv, page].
class KeySource {
 public:
  // Input `i` of the call, whose table is input 5 if its attrs say that it has pages, and whose scales, if there are
  // more inputs, come five behind it.
  KeySource(const OpCall& call, size_t i);

  // The dtype of the elements of a block, which is f32 where pages hold codes.
  DType dtype() const { return scales_ == nullptr ? data_.dtype() : DType::f32; }
  // Keys [key, key + keys) of one head, from key 0 of the result on. They lie where they are, or, if they come from
  // pages, in `room`, of keys * D elements of dtype() and kPackSlack more, which are written. A page that the table
  // does not have, which no query may see, is zeros.
  Head block(int64_t b, int64_t kv, int64_t key, int64_t keys, void* room) const;
  // Prefetches keys [key, end) of a head.
  void prefetch(int64_t b, int64_t kv, int64_t key, int64_t end) const;

 private:
  // visit(page or -1, first key in it, keys, distance from `key`) for the parts of [key, end) that lie in one page.
  template <class Visit>
  void for_pages(int64_t b, int64_t key, int64_t end, Visit visit) const;
  Head page_of(int64_t page, int64_t kv) const;
  const float* scale_of(int64_t page, int64_t kv, int64_t key) const;
  void decode(int64_t page, int64_t kv, int64_t key, int64_t keys, float* to) const;

  const Tensor& data_;
  const Tensor *table_, *scales_;  // null: no pages, no codes
};

// The last key that query s may see according to causal attention and last_key, and the first one, not considering
// first_key.
struct KeyRange {
  int64_t first, last;
};
KeyRange keys_of(const OpCall& call, const Sizes& n, const Tensor& first_key, const Tensor& last_key, int64_t b,
                 int64_t s);

// The range of keys that each row may see, within [0, Sk); first > last for a row that sees none.
struct Bounds {
  std::vector<int32_t> first, last;

  Bounds(const OpCall& call, const Sizes& n, const Tensor& first_key, const Tensor& last_key, int64_t b, int64_t begin,
         int64_t count);

  struct Seen {
    int64_t begin = 0, end = 0;  // all rows that see any of the keys are in [begin, end); equal when there are none
    bool all = false;            // every row in that range sees every key
  };
  // Which of the rows [begin, end) see keys of [key, key + keys).
  Seen seen(int64_t begin, int64_t end, int64_t key, int64_t keys) const;
  bool sees(int64_t begin, int64_t end, int64_t key, int64_t keys) const;  // whether some row sees some key
  KeyRange range(int64_t begin, int64_t end) const;  // the range of keys that any of the rows sees
};

}  // namespace tutti::attention
