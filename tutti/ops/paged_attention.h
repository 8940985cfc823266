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
struct KeyPages {
  Tensor keys, values;  // [P, Hkv, N, D]
  Tensor table;         // i32 [B, W]
};

struct PagedSdpaOptions {
  std::optional<double> scale;    // default: 1 / sqrt(D)
  std::optional<int64_t> window;  // as SdpaOptions::window, before last_key
  double score_cap = 0;           // as SdpaOptions::score_cap
  Tensor first_key = {};          // i32 [B, Sq], as SdpaOptions::first_key
};

// sdpa (attention.h) of q [B, Sq, Hq, D] over the keys of each sequence from 0 to last_key, i32 [B, Sq], which for a
// causal model is the position of the query. The bits are those of sdpa over the same keys in one tensor. A query whose
// last key is -1 sees none and gives zeros. Keys that no query of the call sees are not read. Not differentiable.
// UsageError when shapes or dtypes do not match, for a last key that the table does not reach, and for a page that does
// not exist.
Tensor sdpa_paged(const Tensor& q, const KeyPages& pages, const Tensor& last_key, const PagedSdpaOptions& options = {});

// Writes rows [T, Hkv, D] into the slots, i64 [T], of pages [P, Hkv, N, D]: slot s is place s % N of page s / N; a
// slot of -1 is skipped. The dtypes are one. UsageError when shapes or dtypes do not match, for slots beyond the pages,
// and for read-only memory. No other thread may read these slots meanwhile. Not differentiable.
void write_pages_(const Tensor& pages, const Tensor& rows, const Tensor& slots);

}  // namespace tutti
