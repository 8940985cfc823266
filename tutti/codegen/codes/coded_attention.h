// Attention over 8-bit codes: q k^T and the product of probabilities and v in codes, the softmax between them in f32.
//
// With scales qs, ks, vs, as, os and zero points qz, kz, vz, az, oz of q, k, v, the probabilities and the result, for
// each query over the keys that it sees, all in f32:
//   score = total(q - qz, k - kz) * ((qs * ks) * softmax scale) + mask
//   e = exp(score - the largest score)
//   p = the code of e * (1 / (sum * as))      u8, or f8e4m3fn
//   y = total(p - az, v - vz) * (as * vs), or the code of y * (1 / os)
// A total of integers is exact and converted once; one of f8e4m3fn is a chain over decoded codes in a tree: over the
// elements of a head that of numerics contract N3, over keys blocks of 64 that are combined in an aligned tree anchored
// at key 0 (N10). The sum of e has the latter tree, with eight lanes in a block. A query that sees no key gives 0. So
// the bits of a query depend neither on padding nor on the rest of the batch.
#pragma once

#include <cstdint>

#include "tutti/core/dtype.h"

namespace tutti {
class ThreadPool;
}

namespace tutti::codegen {

struct CodedHeads {
  const uint8_t* data;
  int64_t batch_stride, position_stride, head_stride;  // elements of a head are neighbours
  float scale;
  int32_t zero_point = 0;
};

struct CodedAttention {
  DType codes;  // of q, k and v: i8, u8 or f8e4m3fn
  int64_t B, Sq, Sk, Hq, Hkv, D;
  CodedHeads q, k, v;  // [B, Sq, Hq, D], [B, Sk, Hkv, D] twice
  float softmax_scale;
  bool causal = false;               // query i sees keys up to i + (length - Sq)
  const int32_t* lengths = nullptr;  // [B]: the keys of each sequence; null: Sk
  // Is added to scores, or true for keys that are seen where it is boolean; null: none. Strides of broadcast dims are
  // 0: of batch, head, query, key.
  const void* mask = nullptr;
  DType mask_dtype = DType::f32;
  int64_t mask_strides[4] = {};
  float p_scale;
  int32_t p_zero_point = 0;
  void* y;        // [B, Sq, Hq, D], dense
  DType y_dtype;  // f32, bf16, f16 or codes
  float y_scale = 1;
  int32_t y_zero_point = 0;
};

void coded_attention(const CodedAttention& attention, ThreadPool& pool);

}  // namespace tutti::codegen
