// Scaled dot-product attention.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct SdpaOptions {
  bool causal = false;          // query i sees keys up to i + (Sk - Sq)
  std::optional<double> scale;  // default: 1 / sqrt(D)
  // Sliding window: keys seen before the last one, which causal or last_key sets; 0 leaves that one alone. Default: all.
  std::optional<int64_t> window;
  // First key that each query may see, i32 [B, Sq]: the start of its document in a packed sequence.
  Tensor first_key = {};
  // Last key that each query may see, i32 [B, Sq], besides the bound of `causal`: the position of the query when queries
  // do not lie in the order of their positions, as under context parallelism.
  Tensor last_key = {};
  // Keys of each sequence that count, i32 [B], at most Sk: the rest of a key/value cache is hidden. Queries are then the
  // last ones of their sequence: `causal` lets query i see keys up to i + (length - Sq).
  Tensor lengths = {};
  // [B or 1, Hq or 1, Sq or 1, Sk]. Booleans: keys that are seen. Floats: added to the scaled scores in the compute dtype;
  // -inf hides a key. Has no gradient.
  Tensor mask = {};
};

// softmax(scale * q k^T) v per head; query head j uses key/value head j div (Hq / Hkv). Scores, statistics and sums in
// f32 (f64 for f64), rounded once. Keys are taken in blocks of 64, combined by the softmax monoid in the aligned tree
// anchored at key 0 (numerics contract, N10): a row's bits depend neither on padding nor on what else is in the batch.
// Nothing of the size Sq x Sk is held. A query that sees no key gives zeros; exact zeros are +0.
// The gradients of k and v sum over queries in the order in which the queries lie, with leaves of token_grain() (N3t).
// Keys and values that are hidden from a query must be finite where a neighbour of the query sees them (0 * NaN is NaN).
// Shapes: q [B, Sq, Hq, D], k and v [B, Sk, Hkv, D] -> [B, Sq, Hq, D]. Source: Vaswani et al. 2017; Milakov 2018; Dao 2022.
// UsageError: shapes or dtypes that do not fit; a window below 0, or one without causal, last_key or lengths.
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
// first_key and last_key count from the beginning of the chunk. Not differentiable, as are the functions below. A mask is
// not taken.
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
