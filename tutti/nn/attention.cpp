#include "tutti/nn/attention.h"

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti::nn {
namespace {

int64_t head_dim_of(int64_t dim, int64_t heads, const MultiheadAttentionOptions& options) {
  const int64_t kv_heads = options.kv_heads == 0 ? heads : options.kv_heads;
  TUTTI_CHECK(dim > 0 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0,
              "MultiheadAttention: {} query heads cannot share {} key/value heads evenly (dim {}); expected positive "
              "numbers, the first a multiple of the second",
              heads, kv_heads, dim);
  TUTTI_CHECK(options.head_dim > 0 || (options.head_dim == 0 && dim % heads == 0),
              "MultiheadAttention: dim {} is not a multiple of {} heads, and head_dim is {}; set "
              "MultiheadAttentionOptions::head_dim",
              dim, heads, options.head_dim);
  return options.head_dim > 0 ? options.head_dim : dim / heads;
}

Tensor split_heads(const Tensor& x, int64_t heads, int64_t head_dim) {
  return reshape(x, {x.size(0), x.size(1), heads, head_dim});
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t dim, int64_t heads, const MultiheadAttentionOptions& options)
    : q_proj(this, "q_proj", dim, heads * head_dim_of(dim, heads, options), LinearOptions{.bias = options.bias}),
      k_proj(this, "k_proj", dim, (options.kv_heads == 0 ? heads : options.kv_heads) * head_dim_of(dim, heads, options),
             LinearOptions{.bias = options.bias}),
      v_proj(this, "v_proj", dim, (options.kv_heads == 0 ? heads : options.kv_heads) * head_dim_of(dim, heads, options),
             LinearOptions{.bias = options.bias}),
      out_proj(this, "out_proj", heads * head_dim_of(dim, heads, options), dim, LinearOptions{.bias = options.bias}),
      heads_(heads),
      kv_heads_(options.kv_heads == 0 ? heads : options.kv_heads),
      head_dim_(head_dim_of(dim, heads, options)) {}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const SdpaOptions& options) const {
  TUTTI_CHECK(query.ndim() == 3 && key.ndim() == 3 && value.ndim() == 3,
              "MultiheadAttention: query {}, key {} and value {}; expected [batch, tokens, dim] each", describe(query),
              describe(key), describe(value));
  // Statements of their own: C++ leaves the order of arguments open, and cotangents are summed in forward order.
  const Tensor q = split_heads(q_proj(query), heads_, head_dim_);
  const Tensor k = split_heads(k_proj(key), kv_heads_, head_dim_);
  const Tensor v = split_heads(v_proj(value), kv_heads_, head_dim_);
  const Tensor attended = sdpa(q, k, v, options);
  return out_proj(reshape(attended, {query.size(0), query.size(1), heads_ * head_dim_}));
}

Tensor MultiheadAttention::forward(const Tensor& x_BSD, KvCache& cache) const {
  TUTTI_CHECK(x_BSD.ndim() == 3, "MultiheadAttention: x is {}; expected [batch, tokens, dim]", describe(x_BSD));
  const int64_t batch = x_BSD.extent(0), tokens = x_BSD.extent(1), end = cache.length + tokens;
  TUTTI_CHECK(cache.keys.defined() && cache.keys.extent(0) == batch && end <= cache.keys.extent(1),
              "MultiheadAttention: {} sequences of {} more tokens do not fit a cache for {} sequences of {} tokens "
              "that holds {}",
              batch, tokens, cache.keys.defined() ? cache.keys.extent(0) : 0,
              cache.keys.defined() ? cache.keys.extent(1) : 0, cache.length);
  TUTTI_CHECK(SlotReads::current() == nullptr,
              "MultiheadAttention: a forward with a cache counts its tokens on the host, which a compiled function or "
              "a checkpointed region would do once only, "
              "or twice; call it outside of them");
  TUTTI_CHECK(cache.keys.dtype() == q_proj->weight.use_dtype() && cache.values.dtype() == cache.keys.dtype(),
              "MultiheadAttention: the cache holds {} and {}; the "
              "module computes in {}",
              name_of(cache.keys.dtype()), name_of(cache.values.dtype()), name_of(q_proj->weight.use_dtype()));
  NoGradScope no_grad;
  const Tensor q = split_heads(q_proj(x_BSD), heads_, head_dim_);
  copy_(narrow(cache.keys, 1, cache.length, tokens), split_heads(k_proj(x_BSD), kv_heads_, head_dim_));
  copy_(narrow(cache.values, 1, cache.length, tokens), split_heads(v_proj(x_BSD), kv_heads_, head_dim_));
  const Tensor attended = sdpa(q, narrow(cache.keys, 1, 0, end), narrow(cache.values, 1, 0, end), {.causal = true});
  const Tensor result = out_proj(reshape(attended, {batch, tokens, heads_ * head_dim_}));
  cache.length = end;
  return result;
}

KvCache MultiheadAttention::make_cache(int64_t batch, int64_t capacity, DType dtype) const {
  TUTTI_CHECK(batch >= 0 && capacity >= 0, "make_cache: {} sequences of {} tokens; expected 0 or more of each", batch,
              capacity);
  return {zeros({batch, capacity, kv_heads_, head_dim_}, dtype), zeros({batch, capacity, kv_heads_, head_dim_}, dtype),
          0};
}

}  // namespace tutti::nn
