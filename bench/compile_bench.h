// `tutti bench compile`: functions run op by op and compiled, beside a memory copy, and a training step of a model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct CompileRow {
  std::string what, shape, mode;  // mode: copy, eager, compiled, batched; apart: compiled without epilogues
  Timing time;                    // of one call
  double gbps = 0;                // by the bytes that the function must move: its inputs once, its outputs once
  int64_t kernels = 0;            // kernel launches of a call, compiled
  double gflops = 0;              // of the matrix products, where there are some
};
// Arithmetic at memory speed: a chain, softmax, norms, an optimizer step, a loss; empty calls with 20 tensors, and with
// tensors that the function holds.
std::vector<CompileRow> run_compile_bench(int threads);
// Matrix products and what follows them in a model: eager, apart and compiled in turns. InternalError when a bit
// differs.
std::vector<CompileRow> run_product_bench(int threads);
// A transformer block of 4 x 256 tokens, width 512, 8 heads, gated layer of 1536, forward and backward in f32: eager
// and compiled, in turns with its products alone. InternalError when a bit differs.
std::vector<CompileRow> run_block_bench(int threads);

struct GraphRow {
  std::string shape;  // chain, products, reductions, softmax, fan
  int64_t nodes = 0;
  double trace_ms = 0, passes_ms = 0;  // minima, with kernels in memory
  double first_ms = 0;                 // of both the first time, with making kernels
};
// Compiles five kinds of functions of so many ops on tensors of 8 x 8.
std::vector<GraphRow> run_graph_bench(std::span<const int64_t> nodes);

struct StepRow {
  std::string model;
  int64_t tokens = 0;                              // of one virtual shard
  double eager_ms = 0, compiled_ms = 0;            // medians of one shard's forward and backward
  double trace_ms = 0, compile_ms = 0;             // of the first compiled call
  int64_t kernels_compiled = 0, kernels_read = 0;  // by LLVM, from the disk cache
  int64_t ops = 0, kernels = 0, launches = 0, fused_ops = 0, calls = 0;
  double kept_mbytes = 0, read_mbytes = 0;  // of the forward for the backward; what the backward reads of it as traced
  int64_t recomputed = 0;                   // ops that run again
  double kernel_mbytes = 0;                 // moved by the kernels of a call
  double arena_mbytes = 0;
  double eager_peak_mbytes = 0, compiled_peak_mbytes = 0;  // of a call, beyond what was there before the first one
  bool same_bits = false;                                  // losses and gradients, eager and compiled
};
StepRow run_step_bench(const std::string& flavor, int64_t rows, int64_t sequence_length, int threads,
                       double activation_memory_budget = 1.0);

}  // namespace tutti::bench
