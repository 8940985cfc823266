// A transformer block, forward and backward, beside its matrix products alone.
#include <cstring>

#include "bench/compile_bench.h"
#include "bench/fma_peak.h"
#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

constexpr int64_t kRows = 4, kLength = 256, kTokens = kRows * kLength, kDim = 512, kHeads = 8, kHidden = 1536;
constexpr double kTotalMs = 12e3;

Tensor random(const Extents& sizes, double scale = 1.0) {
  return uniform(to_shape(sizes), random_key("block"), -scale, scale);
}

// x, two norms, query, key, value, output, gate, up, down.
struct Block {
  std::vector<Tensor> leaves;
  Tensor cotangent = random({kTokens, kDim});
  Block() {
    leaves = {random({kTokens, kDim}), ones({kDim}), ones({kDim})};
    for (int i = 0; i < 4; ++i) leaves.push_back(random({kDim, kDim}, 0.05));
    for (int i = 0; i < 2; ++i) leaves.push_back(random({kHidden, kDim}, 0.05));
    leaves.push_back(random({kDim, kHidden}, 0.05));
    for (const Tensor& t : leaves) requires_grad_(t);
  }
};

// The output and the gradients of all leaves.
std::vector<Tensor> forward_and_backward(const std::vector<Tensor>& p, const Tensor& cotangent) {
  const auto heads = [](const Tensor& t) { return reshape(t, {kRows, kLength, kHeads, kDim / kHeads}); };
  const Tensor n = rms_norm(p[0], p[1]);
  const Tensor seen = sdpa(heads(linear(n, p[3])), heads(linear(n, p[4])), heads(linear(n, p[5])), {.causal = true});
  const Tensor h = add(p[0], linear(reshape(seen, {kTokens, kDim}), p[6]));
  const Tensor m = rms_norm(h, p[2]);
  const Tensor y = add(h, linear(mul(silu(linear(m, p[7])), linear(m, p[8])), p[9]));
  const Tensor losses[] = {sum(mul(y, cotangent))};
  std::vector<Tensor> results = grad(losses, p);
  results.push_back(detach(y));
  return results;
}

// The same 21 products with nothing between them.
void multiply_all(const Block& b) {
  const Tensor wide = b.cotangent,
               hidden = expand(reshape(b.leaves[0], {kTokens, kDim, 1}), {kTokens, kDim, kHidden / kDim});
  static const Tensor dense = clone(reshape(hidden, {kTokens, kHidden}));
  for (size_t i = 3; i < b.leaves.size(); ++i) {
    const Tensor w = detach(b.leaves[i]);
    const Tensor& in = w.extent(1) == kDim ? wide : dense;
    const Tensor& out = w.extent(0) == kDim ? wide : dense;
    linear(in, w);                                                        // forward
    matmul(out, w);                                                       // gradient of the input
    matmul(transpose(in, 0, 1), out, {.axis = ContractionAxis::tokens});  // of the weight
  }
}

}  // namespace

std::vector<CompileRow> run_block_bench(int threads) {
  RankContext::current().set_threads(threads);
  const Block block;
  const auto compiled = compile(forward_and_backward, {.name = "block"});
  std::vector<Tensor> kept = forward_and_backward(block.leaves, block.cotangent);
  const std::vector<Tensor> other = compiled(block.leaves, block.cotangent);
  for (size_t i = 0; i < kept.size(); ++i) {
    TUTTI_ASSERT(std::memcmp(kept[i].raw_data(), other[i].raw_data(), static_cast<size_t>(kept[i].nbytes())) == 0,
                 "bench compile --block: result {} differs", i);
  }
  const std::vector<Timing> times = measure_in_turns(
      {[&] { multiply_all(block); }, [&] { kept = forward_and_backward(block.leaves, block.cotangent); },
       [&] { kept = compiled(block.leaves, block.cotangent); }},
      kTotalMs);
  // Products; attention sees half of the pairs, in two products forward and five backward.
  const double products = 3.0 * 2.0 * kTokens * (4.0 * kDim * kDim + 3.0 * kDim * kHidden),
               attention = 7.0 * 2.0 * kRows * kLength * kLength / 2.0 * kDim;
  double bytes = 0;  // operands and their gradients once
  for (const Tensor& t : block.leaves) bytes += 2.0 * static_cast<double>(t.nbytes());
  const std::string shape = fmt::format("{} x {}, {}, {}", kRows, kLength, kDim, kHidden);
  std::vector<CompileRow> rows;
  const auto add = [&](const char* what, const char* mode, const Timing& time, double flops, int64_t kernels) {
    rows.push_back({what, shape, mode, time, bytes / time.median_us / 1e3, kernels, flops / time.median_us / 1e3});
  };
  add("its products alone", "eager", times[0], products, 0);
  add("transformer block, fwd+bwd", "eager", times[1], products + attention, 0);
  add("transformer block, fwd+bwd", "compiled", times[2], products + attention, compiled.statistics().last.kernels);
  const double peak = fma_peak_gflops() * threads;
  const double bound_us = (products + attention) / peak / 1e3;
  rows.push_back(
      {"at the peak of multiply-adds", shape, "bound", {bound_us, bound_us}, bytes / bound_us / 1e3, 0, peak});
  return rows;
}

}  // namespace tutti::bench
