// Scaled dot-product attention.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct SdpaOptions {
  bool causal = false;          // query i sees keys up to i + (Sk - Sq)
  std::optional<double> scale;  // default: 1 / sqrt(D)
  // First key that each query may see, i32 [B, Sq]: the start of its document in a packed sequence.
  Tensor first_key = {};
  // Last key that each query may see, i32 [B, Sq], besides the bound of `causal`: the position of the query when queries
  // do not lie in the order of their positions, as under context parallelism.
  Tensor last_key = {};
};

// softmax(scale * q k^T) v per head; query head j uses key/value head j div (Hq / Hkv). Scores, statistics and sums in
// f32, rounded once. Keys are taken in blocks of 64, combined by the softmax monoid in the aligned tree anchored at key
// 0 (numerics contract, N10): a row's bits depend neither on padding nor on what else is in the batch. A query that
// sees no key gives zeros.
// The gradients of k and v sum over queries in the order in which the queries lie, with leaves of token_grain() (N3t).
// Shapes: q [B, Sq, Hq, D], k and v [B, Sk, Hkv, D] -> [B, Sq, Hq, D]. Source: Vaswani et al. 2017; Milakov 2018.
Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});

// ---- context parallelism: queries and keys that are parts of those of a row -----------------------------------------

struct SdpaResult {
  Tensor output;     // as sdpa
  Tensor logsumexp;  // [B, Sq, Hq], f32 (f64 for f64); has no gradient
};
SdpaResult sdpa_with_logsumexp(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});
struct SdpaGradients {
  Tensor q, k, v;
};
// Gradients of sdpa for the cotangent `grad` of its output, with the output and logsumexp over all keys. Those of k and v
// are partial values over the queries, that of q over the keys: they stay f32 (f64) until the parts of all ranks are
// added (N4). Keys may be a chunk; first_key and last_key count from its beginning. Not differentiable.
SdpaGradients sdpa_partial_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SdpaResult& result, const SdpaOptions& options = {});

// What a chunk of the keys gives: a node of the tree over key blocks, provided that the chunk begins and ends at blocks
// and is as long as a power of two of them. Chunks may be computed in any order; they are combined by index.
struct SdpaPartial {
  Tensor maximum;  // [B, Sq, Hq, 1], f32 (f64 for f64); -inf for a query that sees no key of the chunk
  Tensor sum;      // [B, Sq, Hq, 1]: of exp(score - maximum)
  Tensor output;   // [B, Sq, Hq, D]: of exp(score - maximum) v
};
// first_key and last_key count from the beginning of the chunk. Not differentiable, as are the functions below.
SdpaPartial sdpa_partial(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});
// Of the chunks of `a` and then those of `b`.
SdpaPartial combine(const SdpaPartial& a, const SdpaPartial& b);
// The output, of type `dtype`, and logsumexp from all keys.
SdpaResult sdpa_of(const SdpaPartial& all, DType dtype);

// Keys per block. Tests lower it to cut short rows.
int64_t key_block();
class KeyBlockScope {
 public:
  explicit KeyBlockScope(int64_t keys);  // process-wide while it lives
  ~KeyBlockScope();
  KeyBlockScope(const KeyBlockScope&) = delete;
  KeyBlockScope& operator=(const KeyBlockScope&) = delete;

 private:
  int64_t previous_;
};

}  // namespace tutti
