// Attention over keys and values that lie in pages: the cache of a generator, whose sequences grow and share pages.
//
// Dims: B sequences, Sq queries of each, Hq query heads, Hkv key/value heads, D head dim, P pages of N keys each, W
// pages of the longest sequence.
#pragma once

#include <cstdint>
#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Key i of sequence b lies in page table[b, i / N], at place i % N. An entry of -1 is a page that no query may see.
// Pages hold numbers of q's dtype, or codes, i8 or f8e4m3fn: a number is then its code times the scale of its key, in
// f32.
struct KeyPages {
  Tensor keys, values;                        // [P, Hkv, N, D]
  Tensor table;                               // i32 [B, W]
  Tensor key_scales = {}, value_scales = {};  // of codes: f32 [P, Hkv, N]; else undefined
  bool holds_codes() const { return key_scales.defined() || value_scales.defined(); }
};

struct PagedSdpaOptions {
  std::optional<double> scale;    // default: 1 / sqrt(D)
  std::optional<int64_t> window;  // as SdpaOptions::window, before last_key
  double score_cap = 0;           // as SdpaOptions::score_cap
  Tensor first_key = {};          // i32 [B, Sq], as SdpaOptions::first_key
};

// sdpa (attention.h) of q [B, Sq, Hq, D] over the keys of each sequence from 0 to last_key, i32 [B, Sq], which for a
// causal model is the position of the query. The bits are those of sdpa over the same keys in one tensor. A query whose
// last key is -1 sees none and gives zeros. Keys that no query of the call sees are not read. Over codes the bits are
// those of sdpa over q and the numbers in f32, whose result is rounded to q's dtype: f32, bf16 or f16. Not
// differentiable. UsageError when shapes or dtypes do not match, for a last key that the table does not reach, and for
// a page that does not exist.
Tensor sdpa_paged(const Tensor& q, const KeyPages& pages, const Tensor& last_key, const PagedSdpaOptions& options = {});

}  // namespace tutti
