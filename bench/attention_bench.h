// `tutti bench attention`: sdpa beside the composite of matrix products and softmax, forward and with backward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "tutti/core/dtype.h"

namespace tutti::bench {

struct AttentionCase {
  int64_t batch = 4, heads = 8, key_heads = 8, length = 1024, keys = 1024, dim = 64;
  int64_t window = -1;  // keys before the query; -1: all
  bool causal = true;
  DType dtype = DType::f32;
  int threads = 1;
};

struct AttentionRow {
  std::string what;  // sdpa, composite
  std::string pass;  // forward, forward+backward
  Timing time;
  double gflops = 0;  // pairs that are seen only, at the minimum; backward counts five products for the forward's two
  double peak_gflops = 0;  // of one thread, f32
  double gbps = 0;         // operands and results once
  double peak_mbytes = 0;  // of the allocator during a call, inputs and results included
  bool verified = true;    // output (and gradients) within tolerance of the composite, where it runs
};

// The composite is left out where its scores would take more than 1 GiB.
std::vector<AttentionRow> run_attention_bench(const AttentionCase& problem);

// "4 x 8/2 x 1024 x 64": batch, query heads (and key heads when fewer), queries (by keys when they differ), head dim.
std::string shape_of(const AttentionCase& problem);

}  // namespace tutti::bench
