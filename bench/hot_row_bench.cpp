#include "bench/hot_row_bench.h"

#include <immintrin.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/table_batched_step.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::bench {
namespace {

constexpr float kRate = 1e-6f;
constexpr int64_t kGrain = 1 << 12;  // entries of a thread at least

struct HotRow {
  explicit HotRow(const HotRowProblem& p) : columns(p.columns) {
    const int64_t others = std::max<int64_t>(p.entries - p.hits, 0), rows = others + 1;
    std::vector<int64_t> indices, offsets = {0};
    for (int64_t e = 0; e < p.entries; ++e) {
      const int64_t before = e * others / p.entries, behind = (e + 1) * others / p.entries;
      indices.push_back(behind > before ? 1 + before * 7919 % others : 0);
      offsets.push_back(e + 1);
    }
    batch = {.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets)};
    weight = full({rows, columns}, 0.5);
    grad = full({p.entries, columns}, 0.0);
    // Small whole numbers, whose sums no order rounds.
    for (int64_t i = 0; i < grad.numel(); ++i) grad.data<float>()[i] = static_cast<float>(i * 37 % 17 - 8);
  }
  int64_t columns;
  TableBatch batch;
  Tensor weight, grad;
};

float read_all(const HotRow& t) {
  std::atomic<float> found{0};
  ThreadPool::current().parallel_for(t.grad.numel() / 8, kGrain, [&](int64_t begin, int64_t end) {
    __m256 sums[4] = {};
    for (int64_t i = begin; i < end; ++i)
      sums[i % 4] = _mm256_add_ps(sums[i % 4], _mm256_loadu_ps(t.grad.data<float>() + 8 * i));
    float lanes[8];
    _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    for (const float x : lanes) found += x;
  });
  return found;
}

void add_atomically(float& place, float x) { std::atomic_ref<float>(place).fetch_add(x, std::memory_order_relaxed); }

void step_by_elements(const HotRow& t, const Tensor& weight) {
  const int64_t* rows = t.batch.indices.data<int64_t>();
  ThreadPool::current().parallel_for(t.batch.indices.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      float* w = weight.data<float>() + rows[e] * t.columns;
      const float* g = t.grad.data<float>() + e * t.columns;
      for (int64_t d = 0; d < t.columns; ++d) add_atomically(w[d], -kRate * g[d]);
    }
  });
}

void step_by_runs(const HotRow& t, const Tensor& weight) {
  const int64_t* rows = t.batch.indices.data<int64_t>();
  ThreadPool::current().parallel_for(t.batch.indices.numel(), kGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(t.columns));
    for (int64_t e = begin; e < end;) {
      const int64_t row = rows[e];
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (; e < end && rows[e] == row; ++e) {
        const float* g = t.grad.data<float>() + e * t.columns;
        for (int64_t d = 0; d < t.columns; ++d) sums[static_cast<size_t>(d)] += g[d];
      }
      float* w = weight.data<float>() + row * t.columns;
      for (int64_t d = 0; d < t.columns; ++d) add_atomically(w[d], -kRate * sums[static_cast<size_t>(d)]);
    }
  });
}

void step_in_order(const HotRow& t, const Tensor& weight) {
  const TableUse use{t.grad, t.batch};
  table_batched_step_(weight, {}, {&use, 1}, {0, {t.columns}, weight.extents()[0]},
                      {.optimizer = TableOptimizer::sgd, .lr = kRate});
}

bool is_right(const HotRow& t, int threads) {
  const Tensor one = clone(t.weight), several = clone(t.weight), by_elements = clone(t.weight),
               by_runs = clone(t.weight);
  RankContext::current().set_threads(1);
  step_in_order(t, one);
  RankContext::current().set_threads(threads + 1);
  step_in_order(t, several);
  RankContext::current().set_threads(threads);
  step_by_elements(t, by_elements);
  step_by_runs(t, by_runs);
  if (std::memcmp(one.raw_data(), several.raw_data(), static_cast<size_t>(one.nbytes())) != 0) return false;
  for (int64_t i = 0; i < one.numel(); ++i) {
    const float w = one.data<float>()[i];
    if (std::fabs(by_elements.data<float>()[i] - w) > 1e-2f || std::fabs(by_runs.data<float>()[i] - w) > 1e-3f)
      return false;
  }
  return true;
}

}  // namespace

EmbeddingResult run_hot_row_bench(const HotRowProblem& p) {
  const HotRow table(p);
  EmbeddingResult result{.entries = table.batch.indices.numel(),
                         .distinct_rows = table.weight.extents()[0],
                         .table_bytes = table.weight.nbytes(),
                         .verified = is_right(table, p.threads)};
  float found = 0;
  const char* kinds[] = {"read", "atomic", "atomic_runs", "sgd"};
  const std::vector<Timing> times =
      measure_warm_turns({[&] { found += read_all(table); }, [&] { step_by_elements(table, table.weight); },
                          [&] { step_by_runs(table, table.weight); }, [&] { step_in_order(table, table.weight); }},
                         p.total_ms);
  for (size_t i = 0; i < std::size(kinds); ++i)
    result.rows.push_back(
        {kinds[i], times[i], static_cast<double>(table.grad.nbytes()) * 1e-9, times[0].min_us / times[i].min_us});
  return result;
}

}  // namespace tutti::bench
