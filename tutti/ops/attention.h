// Scaled dot-product attention.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct SdpaOptions {
  bool causal = false;          // query i attends to keys up to i + (Sk - Sq)
  std::optional<double> scale;  // default: 1 / sqrt(D)
  // Scaled scores s become score_cap tanh(s / score_cap) before masks are applied (Gemma 2); 0: they stay.
  double score_cap = 0;
  // Sliding window: how many keys before the last visible one (set by causal, last_key or lengths) a query attends to;
  // 0: only the last one. Default: all of them.
  std::optional<int64_t> window;
  // i32 [B, Sq]: the first key that each query may attend to, such as the start of its document in a packed sequence.
  Tensor first_key = {};
  // i32 [B, Sq]: the last key that each query may attend to, in addition to the bound of `causal`. Under context
  // parallelism, where queries are not stored in the order of their positions, this is the position of the query.
  Tensor last_key = {};
  // i32 [B], at most Sk: how many keys of each sequence are valid; the rest of a key/value cache is masked out. The
  // queries are then the last ones of their sequence: with `causal`, query i attends to keys up to i + (length - Sq).
  Tensor lengths = {};
  // [B or 1, Hq or 1, Sq or 1, Sk]. A boolean mask is true where a query attends to a key. A float mask is added to the
  // scaled scores in the compute dtype; -inf hides a key. The mask gets no gradient.
  Tensor mask = {};
};

// softmax(scale * q k^T) v per head; query head j uses key/value head j div (Hq / Hkv). Scores, statistics and sums are
// f32 (f64 for f64 operands); the result is rounded once. Keys are processed in blocks of 64, which the softmax monoid
// combines in an aligned tree anchored at key 0 (numerics contract, N10): the bits of a row depend neither on padding
// nor on the rest of the batch. No Sq x Sk matrix is materialized. A query with no visible key gives zeros; exact zeros
// are +0. The gradients of k and v sum over the queries in storage order, with leaves of token_grain() (N3t). Keys and
// values hidden from a query must still be finite where a neighboring query sees them, because 0 * NaN is NaN. Shapes:
// q [B, Sq, Hq, D], k and v [B, Sk, Hkv, D] -> [B, Sq, Hq, D]. Source: Vaswani et al. 2017; Milakov 2018; Dao 2022.
// UsageError when shapes or dtypes do not match, for a score cap that is negative or not finite, or for a window that
// is negative or given without causal, last_key or lengths.
Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});

// ---- context parallelism: the queries and keys are chunks of longer rows
// ---------------------------------------------

struct SdpaResult {
  Tensor output;     // as sdpa
  Tensor logsumexp;  // [B, Sq, Hq], f32 (f64 for f64); has no gradient
};
SdpaResult sdpa_with_logsumexp(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});
struct SdpaGradients {
  Tensor q, k, v;
};
// Gradients of sdpa for the cotangent `grad` of its output; `result` holds the output and logsumexp over all keys. The
// gradients of k and v are partial sums over the queries, that of q is a partial sum over the keys; they stay f32 (f64)
// until the parts of all ranks are added (N4). k and v may be a chunk; first_key and last_key then count from its
// beginning. Not differentiable.
SdpaGradients sdpa_partial_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SdpaResult& result, const SdpaOptions& options = {});

// The attention statistics of one chunk of the keys. They are a node of the tree over key blocks, provided that the
// chunk begins and ends at block borders and its number of blocks is a power of two. Chunks may be computed in any
// order; combine them in the order of their keys.
struct SdpaPartial {
  Tensor maximum;  // [B, Sq, Hq, 1], f32 (f64 for f64); -inf for a query that sees no key of the chunk
  Tensor sum;      // [B, Sq, Hq, 1]: the sum of exp(score - maximum)
  Tensor output;   // [B, Sq, Hq, D]: the sum of exp(score - maximum) v
};
// Computes the statistics of the chunk k, v. first_key and last_key count from the beginning of the chunk; options.mask
// is not supported. This function and those below are not differentiable.
SdpaPartial sdpa_partial(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});
// The statistics of the keys of `a` followed by those of `b`.
SdpaPartial combine(const SdpaPartial& a, const SdpaPartial& b);
// The attention output, of type `dtype`, and the logsumexp, given the statistics of all keys.
SdpaResult sdpa_of(const SdpaPartial& all, DType dtype);

// Keys per block. Tests lower it so that short rows can be divided into blocks.
int64_t key_block();
class KeyBlockScope {
 public:
  explicit KeyBlockScope(int64_t keys);  // applies to the whole process while the scope lives
  ~KeyBlockScope();
  KeyBlockScope(const KeyBlockScope&) = delete;
  KeyBlockScope& operator=(const KeyBlockScope&) = delete;

 private:
  int64_t previous_;
};

}  // namespace tutti
