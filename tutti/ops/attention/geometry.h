// Where the parts of attention lie: sizes, views of heads and groups, rows packed for matrix products, key bounds.
#pragma once

#include "tutti/codegen/gemm.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

struct Sizes {
  int64_t B, Sq, Sk, Hq, Hkv, D, G;
};
Sizes sizes_of(const Tensor& q, const Tensor& k);

// [S, G, D] view of the heads of one group, and one head of keys or values as a matrix operand.
Tensor group_of(const Tensor& t, int64_t b, int64_t kv, int64_t G);
Tensor head_of(const Tensor& t, int64_t b, int64_t h);
codegen::GemmOperand matrix(const Tensor& t);
codegen::GemmOperand transposed(codegen::GemmOperand m);
Tensor rows_of(const Tensor& t, int64_t begin, int64_t count);
// Dense copy of a [S, G, D] view as [S * G, D].
Tensor packed(const Tensor& view);
// Writes such rows back to where a view looks.
void unpack(const Tensor& rows, const Tensor& view);

struct Bounds {
  Tensor first, last;  // i64 [Sq * G, 1]: keys that a row may see
  int64_t last_of(int64_t row, int64_t count) const;  // the largest of `count` rows
};
// The key bound of query s as causal attention and last_key set it.
int64_t last_key_of(const OpCall& call, const Sizes& n, const Tensor& last_key, int64_t b, int64_t s);
Bounds bounds_of(const OpCall& call, const Sizes& n, int64_t b, const Tensor& first_key, const Tensor& last_key);
// The bounds of some rows relative to a key block.
Bounds relative(const Bounds& bounds, int64_t row, int64_t count, int64_t key);

}  // namespace tutti::attention
