// Matrix products and attention of `tutti bench strict`.
#include <cmath>
#include <cstring>
#include <memory>

#include "bench/free_loops.h"
#include "bench/strict_rows.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/fast_gemm.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/add_in_order.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/unary.h"

namespace tutti::bench {
namespace {

using codegen::ContractionTree;

// One chain per result, or chains of `length` whose sums are added to C one after the other: what libraries do.
ContractionTree chains(int64_t k, int64_t length) {
  ContractionTree tree;
  for (int64_t begin = 0; begin < k; begin += length) {
    tree.leaf_lengths.push_back(static_cast<int32_t>(std::min(length, k - begin)));
    tree.merges.push_back(begin > 0);
  }
  return tree;
}

// c[m, n] = a b, a and b as they lie: [m, k] or its transpose, [k, n] or its transpose.
void add_product(StrictRows& bench, const char* op, int64_t m, int64_t n, int64_t k, bool a_transposed,
                 bool b_transposed) {
  if (!bench.wanted(op)) return;
  const Tensor a = a_transposed ? strict_operand({k, m}) : strict_operand({m, k}),
               b = b_transposed ? strict_operand({n, k}) : strict_operand({k, n}), c = zeros({m, n});
  const codegen::GemmOperand left{a.raw_data(), DType::f32, a_transposed ? 1 : k, a_transposed ? m : 1};
  const codegen::GemmOperand right{b.raw_data(), DType::f32, b_transposed ? 1 : n, b_transposed ? k : 1};
  std::vector<Baseline> baselines;
  const auto add_chains = [&](const std::string& name, int64_t length) {
    baselines.push_back({name, [=, tree = chains(k, length)] {
                           codegen::gemm(m, n, k, left, right, {c.raw_data(), DType::f32, n}, tree);
                         }});
  };
  add_chains("same tiles, one chain", k);
  for (const int64_t length : {256, 512, 1024})
    if (length < k) add_chains(fmt::format("same tiles, chains of {}", length), length);
  const codegen::GemmProblem problem{m,          n, k, left, right,      c.raw_data(),
                                     DType::f32, n, 1, {},   DType::f32, codegen::cpu_target()};
  for (const codegen::GemmLibrary* library : codegen::gemm_libraries())
    baselines.push_back({library->name, [=] { codegen::multiply_by(*library, problem, ThreadPool::current()); }});
  if (m == 1 && b_transposed)
    baselines.push_back({"partial sums", [=, &loops = free_loops()] {
                           for_rows(n, [=, &loops](int64_t j) {
                             c.data<float>()[j] = loops.dot(a.data<float>(), b.data<float>() + j * k, k);
                           });
                         }});
  const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k),
               bytes = 4.0 * static_cast<double>(m * k + k * n + m * n);
  bench.add(
      op, fmt::format("{}x{}x{}", m, n, k), bytes, flops,
      [=] { return matmul(a_transposed ? transpose(a, 0, 1) : a, b_transposed ? transpose(b, 0, 1) : b); }, c,
      baselines);
}

void add_products(StrictRows& bench) {
  const auto size = [&](int64_t full) { return bench.size(full, full / 16 + 3); };
  add_product(bench, "matmul", size(1024), size(1024), size(1024), false, false);
  add_product(bench, "matmul", 64, size(2048), size(2048), false, false);
  add_product(bench, "matmul, B^T", 64, size(2048), size(2048), false, true);
  add_product(bench, "matmul, B^T", 1, size(2048), size(2048), false, true);
  add_product(bench, "matmul", 1, size(2048), size(2048), false, false);
  add_product(bench, "matmul", size(512), size(1024), size(32000), false, false);
  add_product(bench, "matmul, A^T", size(1024), size(1024), size(4096), true, false);
}

// The gradient of a value that several projections read (q, k and v; gate and up): a product per projection and their
// sum in forward order, against the one contraction of matmul_sum(), and against a product of operands that lie joined,
// which is as fast as one can be.
void add_branches(StrictRows& bench) {
  constexpr const char* kOp = "dX of branches";
  if (!bench.wanted(kOp)) return;
  struct Case {
    int64_t dim;
    std::vector<int64_t> features;
  };
  const std::vector<Case> cases = {{192, {192, 96, 96}}, {192, {512, 512}},          {256, {2048, 1024, 1024}},
                                   {256, {3072, 3072}},  {1024, {2048, 1024, 1024}}, {1024, {3072, 3072}}};
  for (const Case& c : cases) {
    const int64_t tokens = bench.size(512, 24), dim = bench.size(c.dim, 16);
    std::vector<Tensor> grads, weights;
    std::string shape;
    for (const int64_t full : c.features) {
      const int64_t features = bench.size(full, full / 16);
      grads.push_back(strict_operand({tokens, features}));
      weights.push_back(strict_operand({features, dim}));
      shape += fmt::format("{}{}", shape.empty() ? "" : "+", features);
    }
    const Tensor all_grads = cat(grads, 1), all_weights = cat(weights, 0), result = zeros({tokens, dim});
    const int64_t k = all_weights.extent(0);
    const auto product = [=](const Tensor& g, const Tensor& w) {
      codegen::gemm(tokens, dim, k, {g.raw_data(), DType::f32, k, 1}, {w.raw_data(), DType::f32, dim, 1},
                    {result.raw_data(), DType::f32, dim}, ContractionTree::halving(k));
    };
    const auto sum = [=] {
      std::vector<codegen::GemmSource> sources;
      for (size_t i = 0; i < grads.size(); ++i) {
        const int64_t features = grads[i].extent(1);
        sources.push_back(
            {{grads[i].raw_data(), DType::f32, features, 1}, {weights[i].raw_data(), DType::f32, dim, 1}, features});
      }
      codegen::interleaved_gemm(tokens, dim, sources, {result.raw_data(), DType::f32, dim});
    };
    const auto separate = [=] {
      std::vector<Tensor> terms;
      for (size_t i = 0; i < grads.size(); ++i) terms.push_back(matmul(grads[i], weights[i]));
      return add_in_order(terms);
    };
    const double flops = 2.0 * static_cast<double>(tokens * dim) * static_cast<double>(k),
                 bytes = 4.0 * static_cast<double>(tokens * k + k * dim + tokens * dim);
    bench.add(kOp, fmt::format("{}x({})x{}", tokens, shape, dim), bytes, flops, separate, result,
              {{"one product", [=] { product(all_grads, all_weights); }}});
    bench.add(kOp, fmt::format("{}x({})x{}", tokens, shape, dim), bytes, flops, separate, result,
              {{"matmul_sum", sum}});
  }
}

// Causal: products of 256 queries with all keys that one of them sees, the softmax of a row between them.
void add_attention(StrictRows& bench) {
  if (!bench.wanted("sdpa")) return;
  const FreeLoops& loops = free_loops();
  const int64_t batch = bench.size(4, 1), heads = bench.size(8, 2), length = bench.size(1024, 70),
                dim = bench.size(64, 16), across = heads * dim;
  constexpr int64_t kQueries = 256;
  const Tensor q = strict_operand({batch, length, heads, dim}), k = strict_operand({batch, length, heads, dim}),
               v = strict_operand({batch, length, heads, dim}), o = zeros({batch, length, heads, dim});
  const int64_t blocks = (length + kQueries - 1) / kQueries;
  const auto run = [=, &loops] {
    for_rows(batch * heads * blocks, [=, &loops](int64_t task) {
      const int64_t first = task % blocks * kQueries, queries = std::min(kQueries, length - first),
                    keys = first + queries;
      const int64_t head = task / blocks % heads * dim + task / blocks / heads * length * across,
                    mine = head + first * across;
      const auto scratch = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(queries * keys));
      float* scores = scratch.get();
      codegen::gemm(queries, keys, dim, {q.data<float>() + mine, DType::f32, across, 1},
                    {k.data<float>() + head, DType::f32, 1, across}, {scores, DType::f32, keys}, chains(dim, dim));
      float sums[kQueries];
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t seen = first + i + 1;
        sums[i] = loops.exp_row(scores + i * keys, 1 / std::sqrt(static_cast<float>(dim)), seen, scores + i * keys);
        std::memset(scores + i * keys + seen, 0, static_cast<size_t>(keys - seen) * sizeof(float));
      }
      codegen::gemm(queries, dim, keys, {scores, DType::f32, keys, 1}, {v.data<float>() + head, DType::f32, across, 1},
                    {o.data<float>() + mine, DType::f32, across}, chains(keys, 512));
      for (int64_t i = 0; i < queries; ++i) loops.scale(o.data<float>() + mine + i * across, 1 / sums[i], dim);
    });
  };
  const double pairs = static_cast<double>(batch * heads * length) * static_cast<double>(length + 1) / 2;
  bench.add("sdpa, causal", fmt::format("{}x{}x{}x{}", batch, heads, length, dim),
            4.0 * static_cast<double>(q.nbytes()), 4.0 * pairs * static_cast<double>(dim),
            [=] { return sdpa(q, k, v, {.causal = true}); }, o, {{"rows of 256 queries", run}});
}

}  // namespace

void add_strict_products(StrictRows& bench) {
  add_products(bench);
  add_branches(bench);
  add_attention(bench);
}

}  // namespace tutti::bench
