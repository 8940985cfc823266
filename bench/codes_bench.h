// `tutti bench codes`: products with weights of 8-bit and 4-bit codes, in turns with f32 and a plain read of the same
// bytes, and a self-attention in codes, with its projections merged and apart, in turns with f32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct CodesProblem {
  std::vector<int64_t> rows = {1, 512};                        // of x
  int64_t n = 4096, k = 4096;                                  // k is a multiple of 32
  int64_t batch = 1, length = 512, heads = 12, head_dim = 32;  // of the self-attention
  int threads = 1;
  bool small = false;  // few elements, to check results and not times
};

struct CodesRow {
  std::string kind;  // int8, fp8, int8_weight_only, int4_weight_only
  int64_t m = 0;
  Timing time;            // of one product with x in f32, whose weight is in no cache
  Timing f32;             // of linear() with the decoded weight
  double gops = 0;        // two operations for a multiply-add, at the minimum
  double read_share = 0;  // of the rate at which the bytes of the codes can be read
  double error = 0;       // relative, of Frobenius norms, against linear() with the decoded weight
};
// On the current pool.
std::vector<CodesRow> run_codes_bench(const CodesProblem& problem);

struct SelfAttentionRow {
  std::string kind;            // int8, fp8
  Timing merged;               // compiled: one product, one attention
  Timing apart;                // compiled without merging
  Timing f32;                  // three products and attention in f32, compiled
  int64_t kernels = 0;         // of the merged one
  bool has_same_bits = false;  // merged, apart and op by op
  double error = 0;            // relative, against f32
};
std::vector<SelfAttentionRow> run_self_attention_bench(const CodesProblem& problem);

}  // namespace tutti::bench
