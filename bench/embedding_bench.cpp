#include "bench/embedding_bench.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "tutti/core/philox.h"
#include "tutti/io/npy.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/quantized_table_batched_embedding.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/table_batched_step.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::bench {
namespace {

constexpr int64_t kWidths[] = {16, 32, 128, 64}, kLengths[] = {1, 5, 20, 50, 2, 10};

double uniform_of(int64_t i, uint64_t seed) {
  return philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, philox_key(seed))[0] * 0x1p-32;
}

struct Tables {
  std::vector<Tensor> weights;
  std::vector<int64_t> columns;
  TableBatch batch;
  Tensor grad;  // of the result
  int64_t bags;
};

Tables make_tables(const EmbeddingProblem& p) {
  Tables all{.bags = p.bags};
  std::vector<int64_t> indices, offsets = {0};
  const int64_t tables = p.one_table ? 1 : p.tables;
  for (int64_t t = 0; t < tables; ++t) {
    const double place = tables == 1 ? 1.0 : static_cast<double>(t) / static_cast<double>(tables - 1);
    const double least = std::min<double>(10, static_cast<double>(p.rows));
    const int64_t rows =
        std::max<int64_t>(static_cast<int64_t>(least * std::pow(static_cast<double>(p.rows) / least, place)), 1);
    const int64_t width = p.one_table ? 64 : kWidths[t % 4], length = p.one_table ? 20 : kLengths[t % 6];
    all.weights.push_back(full({rows, width}, 0.5));
    all.columns.push_back(width);
    for (int64_t b = 0; b < p.bags; ++b) {
      for (int64_t e = 0; e < length; ++e) {
        const double u = uniform_of(static_cast<int64_t>(indices.size()), static_cast<uint64_t>(t));
        const double rank =
            p.skew == 0 ? u * static_cast<double>(rows) : std::pow(static_cast<double>(rows), std::pow(u, p.skew)) - 1;
        // Ranks are spread, as rows that are often used do not lie together.
        const uint64_t row = std::min<uint64_t>(static_cast<uint64_t>(rank), static_cast<uint64_t>(rows) - 1);
        indices.push_back(static_cast<int64_t>(row * 2654435761u % static_cast<uint64_t>(rows)));
      }
      offsets.push_back(static_cast<int64_t>(indices.size()));
    }
  }
  int64_t total = 0;
  for (const int64_t width : all.columns) total += width;
  all.batch = {.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets)};
  all.grad = full({p.bags, total}, 1e-3);
  return all;
}

// For programs that look up the same.
void write_batch(const Tables& all, const std::string& folder) {
  std::vector<int64_t> sizes;
  for (const Tensor& w : all.weights) sizes.insert(sizes.end(), {w.extents()[0], w.extents()[1]});
  write_npy(folder + "/indices.npy", all.batch.indices);
  write_npy(folder + "/offsets.npy", all.batch.offsets);
  write_npy(folder + "/tables.npy", Tensor::of<int64_t>(sizes, {static_cast<int64_t>(all.weights.size()), 2}));
}

// Calls visit(table, row) for every entry of the bags [begin, end) of all.
template <class Visit>
void each_entry(const Tables& all, int64_t begin, int64_t end, Visit visit) {
  const int64_t *offsets = all.batch.offsets.data<int64_t>(), *indices = all.batch.indices.data<int64_t>();
  for (int64_t k = begin; k < end; ++k) {
    for (int64_t p = offsets[k]; p < offsets[k + 1]; ++p) visit(static_cast<size_t>(k / all.bags), p, indices[p]);
  }
}

// Loads every line of the rows in the order of the entries, asking for them ahead: what the memory gives.
uint64_t read_rows(const Tables& all) {
  const int64_t *offsets = all.batch.offsets.data<int64_t>(), *indices = all.batch.indices.data<int64_t>();
  std::atomic<uint64_t> found{0};
  ThreadPool::current().parallel_for(
      static_cast<int64_t>(all.columns.size()) * all.bags, 64, [&](int64_t begin, int64_t end) {
        __m256i sum = _mm256_setzero_si256();
        each_entry(all, begin, end, [&](size_t t, int64_t p, int64_t row) {
          const int64_t width = all.columns[t], last = offsets[(static_cast<int64_t>(t) + 1) * all.bags];
          const float* data = all.weights[t].data<float>();
          const int64_t ahead = std::max<int64_t>(1024 / width, 8);
          if (p + ahead < last)
            for (int64_t d = 0; d < width; d += 16) __builtin_prefetch(data + indices[p + ahead] * width + d);
          for (int64_t d = 0; d < width; d += 8)
            sum = _mm256_xor_si256(sum, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + row * width + d)));
        });
        found ^=
            static_cast<uint64_t>(_mm256_extract_epi64(_mm256_xor_si256(sum, _mm256_permute4x64_epi64(sum, 0x4e)), 0));
      });
  return found;
}

bool have_same_bits(const Tensor& a, const Tensor& b) {
  return a.extents() == b.extents() && std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

// The part of feature t, by embedding_bag().
Tensor bags_of_feature(const Tables& all, size_t t) {
  const int64_t* offsets = all.batch.offsets.data<int64_t>();
  const int64_t bag = static_cast<int64_t>(t) * all.bags, first = offsets[bag], last = offsets[bag + all.bags];
  return embedding_bag(all.weights[t], narrow(all.batch.indices, 0, first, last - first),
                       sub(narrow(all.batch.offsets, 0, bag, all.bags), first));
}

void step_all(const Tables& all, std::vector<TableState>& states, const std::vector<Tensor>& weights,
              const TableStep& step) {
  const TableUse use{all.grad, all.batch};
  for (size_t t = 0; t < weights.size(); ++t)
    table_batched_step_(weights[t], states[t], {&use, 1},
                        {static_cast<int64_t>(t), all.columns, weights[t].extents()[0]}, step);
}

std::vector<TableState> states_of(const Tables& all, const TableStep& step) {
  std::vector<TableState> states;
  for (size_t t = 0; t < all.weights.size(); ++t)
    states.push_back(table_state(step, all.weights[t].extents()[0], all.columns[t]));
  return states;
}

bool is_right(const Tables& all, int threads) {
  const Tensor y = table_batched_embedding_bags(all.weights, all.batch).values;
  int64_t column = 0;
  for (size_t t = 0; t < all.weights.size(); ++t) {
    if (!have_same_bits(clone(narrow(y, 1, column, all.columns[t])), bags_of_feature(all, t))) return false;
    column += all.columns[t];
  }
  std::vector<Tensor> one, several;
  for (const int n : {1, threads + 1}) {
    RankContext::current().set_threads(n);
    std::vector<Tensor>& weights = n == 1 ? one : several;
    for (const Tensor& w : all.weights) weights.push_back(w.extents()[0] > 100'000 ? Tensor{} : clone(w));
    std::vector<TableState> states = states_of(all, {});
    const TableUse use{all.grad, all.batch};
    for (size_t t = 0; t < weights.size(); ++t) {
      if (weights[t].defined())
        table_batched_step_(weights[t], states[t], {&use, 1},
                            {static_cast<int64_t>(t), all.columns, weights[t].extents()[0]}, {});
    }
  }
  RankContext::current().set_threads(threads);
  for (size_t t = 0; t < one.size(); ++t) {
    if (one[t].defined() && !have_same_bits(one[t], several[t])) return false;
  }
  return true;
}

}  // namespace

std::vector<Timing> measure_warm_turns(const std::vector<std::function<void()>>& ways, double total_ms) {
  std::vector<std::vector<double>> samples(ways.size());
  const double begin = now_us(MeasuredTime::wall);
  for (int round = 0; round < 3 || now_us(MeasuredTime::wall) - begin < total_ms * 1e3; ++round) {
    for (size_t way = 0; way < ways.size(); ++way) {
      ways[way]();
      for (int call = 0; call < 5; ++call) {
        const double start = now_us(MeasuredTime::wall);
        ways[way]();
        samples[way].push_back(now_us(MeasuredTime::wall) - start);
      }
    }
  }
  std::vector<Timing> times;
  for (std::vector<double>& list : samples) {
    std::sort(list.begin(), list.end());
    times.push_back({list.front(), list[list.size() / 2]});
  }
  return times;
}

EmbeddingResult run_embedding_bench(const EmbeddingProblem& p) {
  const Tables all = make_tables(p);
  if (!p.batch_folder.empty()) write_batch(all, p.batch_folder);
  EmbeddingResult result{.entries = all.batch.indices.numel(), .verified = is_right(all, p.threads)};
  double looked_up = 0, stepped = 0;  // bytes
  std::vector<std::set<int64_t>> distinct(all.weights.size());
  each_entry(all, 0, static_cast<int64_t>(all.weights.size()) * all.bags, [&](size_t t, int64_t, int64_t row) {
    looked_up += static_cast<double>(all.columns[t]) * 4;
    distinct[t].insert(row);
  });
  for (size_t t = 0; t < distinct.size(); ++t) {
    result.distinct_rows += static_cast<int64_t>(distinct[t].size());
    result.table_bytes += all.weights[t].nbytes();
    stepped += static_cast<double>(all.columns[t]) * 8 * static_cast<double>(distinct[t].size());
  }
  uint64_t found = 0;
  std::vector<std::string> kinds = {"read"};
  std::vector<std::function<void()>> ways = {[&] { found += read_rows(all); }};
  const auto add = [&](const std::string& kind, std::function<void()> way) {
    if (!p.only.empty() && std::find(p.only.begin(), p.only.end(), kind) == p.only.end()) return;
    kinds.push_back(kind);
    ways.push_back(std::move(way));
  };
  add("forward", [&] { table_batched_embedding_bags(all.weights, all.batch); });
  if (p.one_table) add("embedding_bag", [&] { bags_of_feature(all, 0); });
  std::vector<QuantizedTable> codes[2];
  const RowQuantization formats[] = {RowQuantization::fused_8bit_rowwise_sbhalf_front,
                                     RowQuantization::fused_4bit_rowwise_sbhalf_front};
  for (size_t i = 0; i < 2 && p.codes; ++i) {
    for (size_t t = 0; t < all.weights.size(); ++t)
      codes[i].push_back({quantize_rows(all.weights[t], formats[i]), formats[i], all.columns[t]});
    add(i == 0 ? "int8" : "int4", [&, i] { quantized_table_batched_embedding_bags(codes[i], all.batch); });
  }
  std::vector<TableState> states[2];
  const TableStep steps[] = {{.optimizer = TableOptimizer::sgd, .lr = 1e-6},
                             {.optimizer = TableOptimizer::rowwise_adagrad, .lr = 1e-6}};
  const char* names[] = {"sgd", "rowwise_adagrad"};
  for (size_t i = 0; i < 2; ++i) {
    states[i] = states_of(all, steps[i]);
    add(names[i], [&, i] {
      table_batched_embedding_bags(all.weights, all.batch);
      step_all(all, states[i], all.weights, steps[i]);
    });
  }
  const std::vector<Timing> times = measure_warm_turns(ways, p.total_ms);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const double share = kinds[i] == "int8" ? 0.25 : kinds[i] == "int4" ? 0.125 : 1;  // of the bytes of f32, codes only
    const bool steps_rows = kinds[i] == "sgd" || kinds[i] == "rowwise_adagrad";
    EmbeddingRow row{kinds[i], times[i], (steps_rows ? 2 * looked_up + stepped : share * looked_up) * 1e-9};
    row.read_share = row.gbytes / times[i].min_us / (looked_up * 1e-9 / times[0].min_us);
    result.rows.push_back(row);
  }
  return result;
}

}  // namespace tutti::bench
