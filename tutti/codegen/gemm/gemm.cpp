#include "tutti/codegen/gemm/gemm.h"

#include <algorithm>
#include <optional>

#include "tutti/codegen/gemm/choice.h"
#include "tutti/codegen/gemm/fast_gemm.h"
#include "tutti/codegen/gemm/plan.h"
#include "tutti/codegen/gemm/stream.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/core/error.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

std::byte* at(void* data, DType dtype, int64_t element) {
  return static_cast<std::byte*>(data) + element * itemsize(dtype);
}

void check_operand(const char* name, DType dtype) {
  TUTTI_CHECK(dtype <= DType::f16, "gemm: {} is {}; expected f64, f32, bf16 or f16", name, name_of(dtype));
}

// As GemmProblem::compute.
DType compute_type(const GemmOperand& a, const GemmOperand& b) {
  if (a.dtype == DType::f64 || b.dtype == DType::f64) return DType::f64;
  return a.dtype == DType::bf16 && b.dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

// All sources compute in what they have in common, else in f32, or in f64 where one does.
DType compute_type(std::span<const GemmSource> sources) {
  std::optional<DType> compute;
  for (const GemmSource& s : sources) {
    if (s.k == 0) continue;  // what is absent decides nothing
    const DType next = compute_type(s.a, s.b);
    if (compute.value_or(next) != next) compute = next == DType::f64 || compute == DType::f64 ? DType::f64 : DType::f32;
    else compute = next;
  }
  return compute.value_or(DType::f32);
}

void store_identity(const GemmBatch& batch, int64_t m, int64_t n, const GemmResult& c, const GemmConsumer* consumer) {
  std::byte* spare = c.data ? nullptr : gemm_workspaces().block.reserve(n * itemsize(c.dtype));
  for (int64_t x = 0; x < batch.count; ++x) {
    for (int64_t i = 0; i < m; ++i) {
      std::byte* row = c.data ? at(c.data, c.dtype, x * batch.c_stride + i * c.row_stride) : spare;
      store_sum_identity(row, c.dtype, n);
      if (consumer) (*consumer)({x * m + i, 1, 0, n, row, n});
    }
  }
}

// The number of elements of A that a walk which does not pack each row once makes at a time, and the least for a
// thread.
constexpr int64_t kProducedBytes = int64_t{4} << 20, kWorthProducing = int64_t{1} << 16;

// Rows [first_row, first_row + rows) of A.
GemmOperand produce_rows(int64_t first_row, int64_t rows, int64_t k, const GemmOperand& a, const GemmProducer& producer,
                         ThreadPool& pool) {
  const int64_t item = itemsize(a.dtype);
  std::byte* const all = gemm_workspaces().produced.reserve(rows * k * item);
  const bool rows_are_neighbours = a.row_stride == 1;
  const int64_t row_stride = rows_are_neighbours ? 1 : k, column_stride = rows_are_neighbours ? rows : 1;
  const auto part = [&](int64_t row, int64_t end_row, int64_t first_k, int64_t end_k) {
    std::byte* const data = all + (row * row_stride + first_k * column_stride) * item;
    producer({first_row + row, end_row - row, first_k, end_k - first_k, data, row_stride, column_stride});
  };
  // In pieces whose elements are neighbours.
  if (rows_are_neighbours)
    pool.parallel_for(k, kWorthProducing / (rows * item) + 1,
                      [&](int64_t begin, int64_t end) { part(0, rows, begin, end); });
  else
    pool.parallel_for(rows, kWorthProducing / (k * item) + 1,
                      [&](int64_t begin, int64_t end) { part(begin, end, 0, k); });
  return {all, a.dtype, row_stride, column_stride};
}

// The problem in blocks of rows, each made before it is multiplied.
void multiply_produced(const GemmBatch& batch, int64_t m, int64_t n, int64_t k, const GemmOperand& a,
                       const GemmOperand& b, const GemmResult& c, const ContractionTree& tree,
                       const GemmOptions& options, ThreadPool& pool) {
  const int64_t together = std::max<int64_t>(kProducedBytes / (k * itemsize(a.dtype)), 1);
  for (int64_t x = 0; x < batch.count; ++x) {
    const GemmOperand own_b{static_cast<const std::byte*>(b.data) + x * batch.b_stride * itemsize(b.dtype), b.dtype,
                            b.row_stride, b.column_stride};
    for (int64_t row = 0; row < m; row += together) {
      const int64_t first = x * m + row, rows = std::min(together, m - row);
      const auto hand_on = [&](GemmBlock block) {
        block.first_row += first;
        (*options.consumer)(block);
      };
      const GemmConsumer consumer(hand_on);
      GemmOptions rest = options;
      rest.producer = nullptr;
      rest.consumer = options.consumer ? &consumer : nullptr;
      GemmResult own_c = c;
      if (c.data) own_c.data = at(c.data, c.dtype, x * batch.c_stride + row * c.row_stride);
      gemm(rows, n, k, produce_rows(first, rows, k, a, *options.producer, pool), own_b, own_c, tree, rest);
    }
  }
}

ThreadPool& pool_of(const GemmOptions& options) { return options.pool ? *options.pool : ThreadPool::current(); }
GemmChooser& chooser_of(const GemmOptions& options) {
  return options.chooser ? *options.chooser : process_gemm_chooser();
}

void multiply_by_tree(const GemmProblem& problem, const ContractionTree& tree, ThreadPool& pool,
                      const GemmOptions& options) {
  if (stream_of(problem, tree) != GemmStream::none) return stream_gemm(problem, tree, pool, options.consumer);
  if (!is_worth_choosing(problem)) return run_gemm(GemmPlan(problem, tree, usual_cut(problem)), pool, options.consumer);
  // Measuring runs the problem itself: every cut writes all of C, and the same bits. A consumer is called once, later.
  const GemmCut cut = chooser_of(options).choose(problem, pool.threads(), [&](const GemmCut& candidate) {
    run_gemm(GemmPlan(problem, tree, candidate), pool, nullptr);
  });
  run_gemm(GemmPlan(problem, tree, cut), pool, options.consumer);
}

// Blocks of A or C are made and used in tiles, which libraries keep to themselves.
bool may_take_library(const GemmProblem& p, const GemmOptions& options) {
  return is_worth_choosing(p) && !options.producer && !options.consumer && numerics_mode() == NumericsMode::fast;
}

// A library's, when it serves the call: then it has.
bool multiply_in_any_order(const GemmProblem& p, ThreadPool& pool, FunctionRef<void()> run_tree) {
  const auto run = [&](const GemmProvider& provider) {
    if (provider.library) multiply_by(*provider.library, p, pool);
    else run_tree();
  };
  const GemmProvider provider = process_gemm_provider_chooser().choose(p, pool.threads(), run);
  if (provider.library) multiply_by(*provider.library, p, pool);
  return provider.library != nullptr;
}

}  // namespace

// The only bit of -0.0 is that of the sign, in every float dtype.
void store_sum_identity(void* to, DType dtype, int64_t count) {
  switch (itemsize(dtype)) {
    case 2:
      std::fill_n(static_cast<uint16_t*>(to), count, static_cast<uint16_t>(1 << 15));
      return;
    case 4:
      std::fill_n(static_cast<uint32_t*>(to), count, uint32_t{1} << 31);
      return;
    default:
      std::fill_n(static_cast<uint64_t*>(to), count, uint64_t{1} << 63);
  }
}

std::string describe_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                          const GemmResult& c, const ContractionTree& tree, const GemmOptions& options) {
  if (m == 0 || n == 0 || k == 0) return "no products";
  const DType compute = compute_type(a, b);
  const GemmProblem problem{m, n, k, a, b, c.data, c.dtype, c.row_stride, 1, {}, compute, options.target};
  if (may_take_library(problem, options)) {
    if (const GemmProvider provider = process_gemm_provider_chooser().known(problem, pool_of(options).threads());
        provider.library)
      return provider.library->name;
  }
  if (const GemmStream stream = stream_of(problem, tree); stream != GemmStream::none)
    return fmt::format("tree gemm {}, b streamed, lanes are {}", name_of(compute),
                       stream == GemmStream::columns ? "columns" : "leaves");
  const GemmPlan plan(problem, tree, chooser_of(options).known(problem, pool_of(options).threads()));
  return fmt::format("tree gemm {} {}, tiles {}x{}, {} chunk{} of k, b {}{}", name_of(options.target), name_of(compute),
                     plan.strips.largest(), plan.panels.largest() * plan.lanes, plan.chunks.size(),
                     plan.chunks.size() == 1 ? "" : "s", plan.b_in_place ? "in place" : "packed",
                     plan.problem.m == m ? "" : ", transposed");
}

void batched_gemm(const GemmBatch& batch, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                  const GemmResult& c, const ContractionTree& tree, const GemmOptions& options) {
  TUTTI_CHECK(m >= 0 && n >= 0 && k >= 0 && batch.count >= 0,
              "gemm: m = {}, n = {}, k = {}, batch of {}; sizes must not be negative", m, n, k, batch.count);
  check_operand("a", a.dtype);
  check_operand("b", b.dtype);
  check_operand("c", c.dtype);
  TUTTI_CHECK_EQ(tree.k(), k, "gemm: the contraction tree has another number of elements than k");
  TUTTI_CHECK(c.data != nullptr || options.consumer != nullptr || m == 0 || n == 0 || batch.count == 0,
              "gemm: c has no memory; give GemmOptions::consumer, which gets its blocks");
  if (m == 0 || n == 0 || batch.count == 0) return;
  if (k == 0) return store_identity(batch, m, n, c, options.consumer);

  // A batch that shares B and whose rows follow each other is one tall problem.
  if (batch.count > 1 && batch.b_stride == 0 && batch.a_stride == m * a.row_stride &&
      batch.c_stride == m * c.row_stride)
    return batched_gemm({}, m * batch.count, n, k, a, b, c, tree, options);

  const auto count = [&] {
    RankContext::current().product_flops.fetch_add(2 * batch.count * m * n * k, std::memory_order_relaxed);
  };
  const DType compute = compute_type(a, b);
  const GemmProblem problem{m, n, k, a, b, c.data, c.dtype, c.row_stride, 1, batch, compute, options.target};
  ThreadPool& pool = pool_of(options);
  if (options.producer) {
    const GemmCut cut = chooser_of(options).known(problem, pool.threads());
    if (stream_of(problem, tree) == GemmStream::none && !cut.transposed) {
      count();
      return run_gemm(GemmPlan(problem, tree, cut), pool, options.consumer, options.producer);
    }
    return multiply_produced(batch, m, n, k, a, b, c, tree, options, pool);
  }
  count();
  if (may_take_library(problem, options) &&
      multiply_in_any_order(problem, pool, [&] { multiply_by_tree(problem, tree, pool, options); }))
    return;
  multiply_by_tree(problem, tree, pool, options);
}

namespace {

struct InterleavedProblem {
  GemmProblem problem;
  InterleavedContraction contraction;
  GemmPlan plan(std::span<const GemmSource> sources, bool is_produced) const {
    GemmCut cut = usual_cut(problem);
    cut.b_in_place = false;
    if (is_produced && cut.transposed)
      cut = {false,           false,
             cut.rows,        static_cast<uint8_t>(most_vectors(problem.target, cut.rows)),
             cut.chunk_bytes, cut.tasks_per_thread};
    return GemmPlan(problem, contraction.tree, cut, {{sources.begin(), sources.end()}, contraction.pieces});
  }
};

// Pieces begin with a pair of their own: leaves count what fills the last pairs of others.
void fill_pairs(InterleavedContraction& contraction) {
  size_t piece = 0;
  for (int32_t& leaf : contraction.tree.leaf_lengths) {
    int32_t filled = 0;
    for (int32_t taken = 0; taken < leaf; ++piece) {
      taken += contraction.pieces[piece].length;
      filled += (contraction.pieces[piece].length + 1) / 2 * 2;
    }
    leaf = filled;
  }
}

InterleavedProblem interleaved(int64_t m, int64_t n, std::span<const GemmSource> sources, const GemmResult& c,
                               const GemmOptions& options) {
  std::vector<int64_t> lengths;
  for (const GemmSource& s : sources) {
    check_operand("a", s.a.dtype);
    check_operand("b", s.b.dtype);
    lengths.push_back(s.k);
  }
  InterleavedContraction contraction = InterleavedContraction::halving(lengths);
  const int64_t k = contraction.tree.k();
  const DType compute = compute_type(sources);
  if (tile_kind(compute, options.target) == TileKind::bf16_pairs) fill_pairs(contraction);
  return {{m, n, k, sources[0].a, sources[0].b, c.data, c.dtype, c.row_stride, 1, {}, compute, options.target},
          std::move(contraction)};
}

}  // namespace

void interleaved_gemm(int64_t m, int64_t n, std::span<const GemmSource> sources, const GemmResult& c,
                      const GemmOptions& options) {
  TUTTI_CHECK(m >= 0 && n >= 0 && !sources.empty(),
              "interleaved_gemm: m = {}, n = {}, {} sources; sizes must not be negative, and there must be a source", m,
              n, sources.size());
  TUTTI_CHECK(c.data != nullptr || options.consumer != nullptr || m == 0 || n == 0,
              "interleaved_gemm: c has no memory; give GemmOptions::consumer, which gets its blocks");
  check_operand("c", c.dtype);
  const InterleavedProblem p = interleaved(m, n, sources, c, options);
  if (m == 0 || n == 0) return;
  if (p.problem.k == 0) return store_identity({}, m, n, c, options.consumer);
  RankContext::current().product_flops.fetch_add(2 * m * n * p.problem.k, std::memory_order_relaxed);
  run_gemm(p.plan(sources, options.producer != nullptr), pool_of(options), options.consumer, options.producer);
}

std::string describe_interleaved_gemm(int64_t m, int64_t n, std::span<const GemmSource> sources, const GemmResult& c,
                                      const GemmOptions& options) {
  const InterleavedProblem p = interleaved(m, n, sources, c, options);
  if (m == 0 || n == 0 || p.problem.k == 0) return "no products";
  const GemmPlan plan = p.plan(sources, options.producer != nullptr);
  return fmt::format("tree gemm {} {} of {} products, tiles {}x{}, {} chunk{} of k, b packed{}",
                     name_of(options.target), name_of(p.problem.compute), sources.size(), plan.strips.largest(),
                     plan.panels.largest() * plan.lanes, plan.chunks.size(), plan.chunks.size() == 1 ? "" : "s",
                     plan.transposed ? ", transposed" : "");
}

void gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
          const ContractionTree& tree, const GemmOptions& options) {
  batched_gemm({}, m, n, k, a, b, c, tree, options);
}

}  // namespace tutti::codegen
