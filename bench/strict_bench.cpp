#include "bench/strict_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/free_loops.h"
#include "bench/strict_rows.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

// Largest difference over largest element: rounding of sums is relative to what was added.
bool agree(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  double most = 0, apart = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = x.data<float>()[i], v = y.data<float>()[i];
    most = std::max(most, std::abs(u));
    apart = std::max(apart, std::isnan(u) || std::isnan(v) ? INFINITY : std::abs(u - v));
  }
  return x.numel() == y.numel() && apart <= 1e-4 * most;
}

Tensor picks(const Shape& sizes, int64_t end) { return randint(0, end, sizes, random_key("picks")); }

void add_sums(StrictRows& bench) {
  const FreeLoops& loops = free_loops();
  constexpr int64_t kPart = 1 << 16;
  for (const int64_t n : {bench.size(int64_t{1} << 20, 5000), bench.size(int64_t{1} << 24, 200001)}) {
    if (!bench.wanted("sum")) break;
    const Tensor x = strict_operand({n}, 0.0, 1.0), result = zeros({});
    std::vector<float> parts(static_cast<size_t>((n + kPart - 1) / kPart));
    bench.add("sum", fmt::format("{}", n), 4.0 * static_cast<double>(n), 0, [=] { return sum(x); }, result,
              {{"partial sums", [&, x, result] {
                  for_rows(static_cast<int64_t>(parts.size()), [&](int64_t p) {
                    parts[static_cast<size_t>(p)] =
                        loops.sum(x.data<float>() + p * kPart, std::min(kPart, n - p * kPart));
                  });
                  result.data<float>()[0] = loops.sum(parts.data(), static_cast<int64_t>(parts.size()));
                }}});
  }
}

// The norm of a gradient, whose bins make it independent of the order (numerics contract, N7), beside f32 sums of the
// same reads.
void add_gradient_norm(StrictRows& bench) {
  const FreeLoops& loops = free_loops();
  constexpr int64_t kPart = 1 << 16;
  for (const int64_t n : {bench.size(int64_t{1} << 20, 5000), bench.size(int64_t{1} << 24, 200001)}) {
    if (!bench.wanted("gradient norm")) break;
    const Tensor x = strict_operand({n}), norm = zeros({}), result = zeros({});
    std::vector<float> parts(static_cast<size_t>((n + kPart - 1) / kPart));
    const auto strict = [=] {
      norm.data<float>()[0] = optim::norm_of(optim::square_sum({&x, 1}));
      return norm;
    };
    bench.add("gradient norm", fmt::format("{}", n), 4.0 * static_cast<double>(n), 0, strict, result,
              {{"partial sums of squares", [&, x, result] {
                  for_rows(static_cast<int64_t>(parts.size()), [&](int64_t p) {
                    const float* part = x.data<float>() + p * kPart;
                    parts[static_cast<size_t>(p)] = loops.dot(part, part, std::min(kPart, n - p * kPart));
                  });
                  result.data<float>()[0] = std::sqrt(loops.sum(parts.data(), static_cast<int64_t>(parts.size())));
                }}});
  }
}

void add_column_sums(StrictRows& bench) {
  const FreeLoops& loops = free_loops();
  for (const int64_t full : {2048, 16384}) {
    if (!bench.wanted("sum")) break;
    const int64_t rows = bench.size(full, full / 256 + 1), columns = bench.size(1024, 77);
    const Tensor x = strict_operand({rows, columns}, 0.0, 2.0), result = zeros({columns});
    bench.add("sum", fmt::format("{}x{} of columns", rows, columns), static_cast<double>(x.nbytes()), 0,
              [=] { return sum(x, {.dims = {0}}); }, result,
              {{"rows added to one, in parts", [=, &loops] {
                  const int64_t parts = ThreadPool::current().threads();
                  std::vector<float> sums(static_cast<size_t>(parts * columns));
                  for_rows(parts, [&](int64_t p) {
                    for (int64_t r = rows * p / parts; r < rows * (p + 1) / parts; ++r)
                      loops.add(sums.data() + p * columns, x.data<float>() + r * columns, columns);
                  });
                  std::memcpy(result.raw_data(), sums.data(), static_cast<size_t>(result.nbytes()));
                  for (int64_t p = 1; p < parts; ++p)
                    loops.add(result.data<float>(), sums.data() + p * columns, columns);
                }}});
  }
}

// Rows of 1024: one result per row, or one row per row. They stay in a cache, where memory hides no arithmetic.
void add_rows(StrictRows& bench) {
  const FreeLoops& loops = free_loops();
  const int64_t rows = bench.size(2048, 37), columns = bench.size(1024, 77);
  const std::string shape = fmt::format("{}x{}", rows, columns);
  const double full = 4.0 * static_cast<double>(rows * columns);
  const Tensor x = strict_operand({rows, columns}, 0.0, 2.0), y = zeros({rows, columns}), of_row = zeros({rows});
  const Tensor weight = strict_operand({columns}), bias = strict_operand({columns});
  const float *in = x.data<float>(), *w = weight.data<float>(), *b = bias.data<float>();
  float* out = y.data<float>();
  if (bench.wanted("mean"))
    bench.add("mean", shape + " of rows", full, 0, [=] { return mean(x, {.dims = {1}}); }, of_row,
              {{"partial sums", [=, &loops] {
                  for_rows(rows, [=, &loops](int64_t r) {
                    of_row.data<float>()[r] = loops.sum(in + r * columns, columns) / static_cast<float>(columns);
                  });
                }}});
  if (bench.wanted("softmax"))
    bench.add("softmax", shape, 2 * full, 0, [=] { return softmax(x, -1); }, y,
              {{"one exp an element", [=, &loops] {
                  for_rows(rows, [=, &loops](int64_t r) {
                    float* row = out + r * columns;
                    loops.scale(row, 1 / loops.exp_row(in + r * columns, 1, columns, row), columns);
                  });
                }}});
  if (bench.wanted("layer_norm"))
    bench.add("layer_norm", shape, 2 * full, 0, [=] { return layer_norm(x, weight, bias); }, y,
              {{"partial sums", [=, &loops] {
                  for_rows(rows, [=, &loops](int64_t r) {
                    loops.layer_norm(in + r * columns, w, b, 1e-5F, columns, out + r * columns);
                  });
                }}});
  if (bench.wanted("rms_norm"))
    bench.add("rms_norm", shape, 2 * full, 0, [=] { return rms_norm(x, weight); }, y,
              {{"partial sums", [=, &loops] {
                  for_rows(rows, [=, &loops](int64_t r) {
                    loops.rms_norm(in + r * columns, w, 1e-6F, columns, out + r * columns);
                  });
                }}});
}

void add_cross_entropy(StrictRows& bench) {
  if (!bench.wanted("cross_entropy")) return;
  const FreeLoops& loops = free_loops();
  const int64_t rows = bench.size(128, 19), classes = bench.size(32000, 1100);
  const Tensor logits = strict_operand({rows, classes}, -4.0, 4.0), labels = picks({rows}, classes),
               result = zeros({rows});
  bench.add("cross_entropy", fmt::format("{}x{}", rows, classes), 4.0 * static_cast<double>(rows * classes), 0,
            [=] { return cross_entropy(logits, labels); }, result,
            {{"one exp an element", [=, &loops] {
                for_rows(rows, [=, &loops](int64_t r) {
                  const float* row = logits.data<float>() + r * classes;
                  result.data<float>()[r] = loops.logsumexp(row, classes) - row[labels.data<int64_t>()[r]];
                });
              }}});
}

// Terms go where an index says, one after the other; threads share out columns.
void add_indexed(StrictRows& bench) {
  const FreeLoops& loops = free_loops();
  for (const auto& [tokens, vocab] : {std::pair<int64_t, int64_t>{4096, 32000}, {8192, 256}}) {
    if (!bench.wanted("embedding")) break;
    const int64_t count = bench.size(tokens, 300), columns = bench.size(512, 17), rows = bench.size(vocab, 40);
    const Tensor grad = strict_operand({count, columns}, 0.0, 1.0), index = picks({count}, rows),
                 result = zeros({rows, columns});
    bench.add("embedding, gradient", fmt::format("{}x{} to {}", count, columns, rows),
              4.0 * static_cast<double>((count + rows) * columns), 0,
              [=] { return embedding_backward(grad, index, rows); }, result,
              {{"rows added where they belong", [=, &loops] {
                  const int64_t parts = ThreadPool::current().threads();
                  for_rows(parts, [&](int64_t p) {
                    std::memset(
                        result.data<float>() + rows * p / parts * columns, 0,
                        static_cast<size_t>((rows * (p + 1) / parts - rows * p / parts) * columns) * sizeof(float));
                  });
                  for_rows(parts, [&](int64_t p) {
                    const int64_t begin = columns * p / parts, end = columns * (p + 1) / parts;
                    for (int64_t t = 0; t < count; ++t)
                      loops.add(result.data<float>() + index.data<int64_t>()[t] * columns + begin,
                                grad.data<float>() + t * columns + begin, end - begin);
                  });
                }}});
  }
  if (!bench.wanted("scatter_add")) return;
  const auto scatter = [&](const std::string& shape, int64_t rows, int64_t columns, int64_t end) {
    const Tensor x = strict_operand({end, columns}, 0.0, 1.0), source = strict_operand({rows, columns}, 0.0, 1.0),
                 index = picks({rows, columns}, end), result = zeros({end, columns});
    bench.add("scatter_add", shape, 8.0 * static_cast<double>(x.numel()) + 20.0 * static_cast<double>(index.numel()), 0,
              [=] { return scatter_add(x, 0, index, source); }, result,
              {{"added where they belong", [=] {
                  std::memcpy(result.raw_data(), x.raw_data(), static_cast<size_t>(x.nbytes()));
                  const int64_t parts = std::min<int64_t>(ThreadPool::current().threads(), columns);
                  for_rows(parts, [&](int64_t p) {
                    const int64_t* to = index.data<int64_t>();
                    const float* from = source.data<float>();
                    float* sums = result.data<float>();
                    for (int64_t r = 0; r < rows; ++r)
                      for (int64_t j = columns * p / parts; j < columns * (p + 1) / parts; ++j)
                        sums[to[r * columns + j] * columns + j] += from[r * columns + j];
                  });
                }}});
  };
  const int64_t many = bench.size(int64_t{1} << 20, 900), rows = bench.size(1 << 16, 90), wide = bench.size(64, 7);
  scatter(fmt::format("{} to {}", many, many), many, 1, many);
  scatter(fmt::format("{}x{} to {}", rows, wide, rows), rows, wide, rows);
}

}  // namespace

void StrictRows::add(const char* op, const std::string& shape, double bytes, double flops,
                     const std::function<Tensor()>& strict, const Tensor& free_result,
                     const std::vector<Baseline>& baselines) {
  StrictRow row{.op = op, .shape = shape};
  Tensor kept = strict();
  std::vector<std::function<void()>> ways{[&] { kept = strict(); }};
  for (const Baseline& b : baselines) {
    b.run();
    row.verified = row.verified && agree(kept, free_result);
    ways.push_back(b.run);
  }
  const std::vector<Timing> times = measure_in_turns(ways, problem_.small ? 0.0 : 600.0, problem_.clock);
  const auto best = std::min_element(times.begin() + 1, times.end(),
                                     [](const Timing& a, const Timing& b) { return a.min_us < b.min_us; });
  row.baseline = baselines[static_cast<size_t>(best - times.begin() - 1)].name;
  row.strict = times[0];
  row.free = *best;
  row.gbps = bytes / row.strict.median_us / 1e3;
  row.gflops = flops / row.strict.median_us / 1e3;
  rows.push_back(std::move(row));
}

std::vector<StrictRow> run_strict_bench(const StrictCase& problem) {
  TUTTI_CHECK(problem.clock == MeasuredTime::wall || problem.threads == 1,
              "bench strict: --cpu-time is that of one thread, and --threads is {}; use --threads 1", problem.threads);
  RankContext::current().set_threads(problem.threads);
  seed_all(1);
  StrictRows bench(problem);
  add_sums(bench);
  add_gradient_norm(bench);
  add_column_sums(bench);
  add_rows(bench);
  add_cross_entropy(bench);
  add_strict_products(bench);
  add_indexed(bench);
  return std::move(bench.rows);
}

}  // namespace tutti::bench
