#include "tutti/codegen/gemm.h"

#include <algorithm>

#include "tutti/codegen/gemm_choice.h"
#include "tutti/codegen/gemm_pack.h"
#include "tutti/codegen/gemm_plan.h"
#include "tutti/codegen/gemm_workspace.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Packed rows of A are read once per panel, from the last-level cache: all of A when it fits there, else blocks.
constexpr int64_t kWholeABytes = int64_t{8} << 20, kBlockABytes = int64_t{4} << 20;
// Rows of a k-major A that stay in the first-level cache while strip after strip takes its part.
constexpr int64_t kNearK = 32;
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 18;
constexpr int64_t kWorthPacking = int64_t{1} << 16;

const std::byte* at(const void* data, DType dtype, int64_t element) {
  return static_cast<const std::byte*>(data) + element * itemsize(dtype);
}
std::byte* at(void* data, DType dtype, int64_t element) {
  return static_cast<std::byte*>(data) + element * itemsize(dtype);
}

// One GEMM of a plan: the plan's problem with the data of one batch element.
class GemmRun {
 public:
  GemmRun(const GemmPlan& plan, const void* a, const void* b, void* c, ThreadPool& pool)
      : plan_(plan), p_(plan.problem), a_(a), b_(b), c_(c), pool_(pool), size_(itemsize(p_.compute)) {}

  void run();

 private:
  void pack_strips(int64_t first_strip, int64_t strips);
  void run_panel(int64_t panel, int64_t first_strip, int64_t strips);
  // B of a chunk as the tile reads it, and the distance of its rows.
  GemmTileCall place_b(const ContractionChunk& chunk, int64_t panel, bool in_place);

  // Chunk by chunk, strip by strip: the order of reading. Each has room for what packing writes behind it.
  int64_t packed_offset(size_t chunk_index, int64_t strip) const {
    const ContractionChunk& chunk = plan_.chunks[chunk_index];
    const int64_t first_row = plan_.strips.begin(block_strip_);
    const int64_t block_rows = plan_.strips.begin(block_strip_ + block_strips_) - first_row;
    const int64_t slack = (static_cast<int64_t>(chunk_index) * block_strips_ + strip - block_strip_) * kPackSlack;
    return chunk.first_k * block_rows + (plan_.strips.begin(strip) - first_row) * chunk.length + slack;
  }

  const GemmPlan& plan_;
  const GemmProblem& p_;
  const void* a_;
  const void* b_;
  void* c_;
  ThreadPool& pool_;
  const int64_t size_;
  std::byte* packed_a_ = nullptr;
  int64_t block_strip_ = 0, block_strips_ = 0;  // the strips that are packed
};

void GemmRun::pack_strips(int64_t first_strip, int64_t strips) {
  const int64_t row_stride = p_.a.row_stride, column_stride = p_.a.column_stride;
  for (size_t x = 0; x < plan_.chunks.size(); ++x) {
    const ContractionChunk& chunk = plan_.chunks[x];
    // When rows are neighbours in memory, a cache line of A serves several strips: take them all while it is near.
    const int64_t longest = row_stride == 1 ? kNearK : chunk.length;
    for (int64_t k = 0; k < chunk.length; k += longest) {
      for (int64_t s = first_strip; s < first_strip + strips; ++s) {
        const int64_t rows = plan_.strips.size(s);
        const void* from = at(a_, p_.a.dtype, plan_.strips.begin(s) * row_stride + (chunk.first_k + k) * column_stride);
        pack({from, p_.a.dtype, column_stride, row_stride}, std::min(longest, chunk.length - k), rows, p_.compute,
             packed_a_ + (packed_offset(x, s) + k * rows) * size_, rows);
      }
    }
  }
}

GemmTileCall GemmRun::place_b(const ContractionChunk& chunk, int64_t panel, bool in_place) {
  const int64_t width = plan_.panels.size(panel) * plan_.lanes, first_column = plan_.panels.begin(panel) * plan_.lanes;
  const void* from = at(b_, p_.b.dtype, chunk.first_k * p_.b.row_stride + first_column * p_.b.column_stride);
  GemmTileCall call{};
  call.b = from;
  call.b_stride = p_.b.row_stride;
  if (in_place) return call;
  void* packed = gemm_workspaces().b.reserve((plan_.longest_chunk() * width + kPackSlack) * size_);
  pack({from, p_.b.dtype, p_.b.row_stride, p_.b.column_stride}, chunk.length, plan_.panel_columns(panel), p_.compute,
       packed, width);
  call.b = packed;
  call.b_stride = width;
  return call;
}

void GemmRun::run_panel(int64_t panel, int64_t first_strip, int64_t strips) {
  const int64_t columns = plan_.panel_columns(panel), vectors = plan_.panels.size(panel);
  const int64_t width = vectors * plan_.lanes;
  const bool in_place = plan_.b_in_place && columns == width;
  const bool direct = p_.c_dtype == p_.compute && p_.c_column_stride == 1 && columns == width;
  GemmWorkspaces& mine = gemm_workspaces();
  const int64_t tile_bytes = plan_.largest_tile() * size_;
  const int64_t stack_bytes = plan_.depth * tile_bytes;
  // A strip's pending tiles wait for the next chunk.
  std::byte* stacks = mine.stack.reserve(stack_bytes * (plan_.chunks.size() > 1 ? strips : 1));
  std::byte* tile = direct ? nullptr : mine.tile.reserve(tile_bytes);

  const auto kernel_for_rows = [&](int64_t rows) {
    return gemm_tile_for(
        {p_.compute, in_place ? p_.b.dtype : p_.compute, static_cast<int32_t>(rows), static_cast<int32_t>(vectors)},
        p_.target);
  };
  for (size_t x = 0; x < plan_.chunks.size(); ++x) {
    const ContractionChunk& chunk = plan_.chunks[x];
    GemmTileCall call = place_b(chunk, panel, in_place);
    call.leaf_lengths = plan_.tree.leaf_lengths.data() + chunk.first_leaf;
    call.merges = plan_.tree.merges.data() + chunk.first_leaf;
    call.leaves = chunk.leaves;
    call.is_last = chunk.first_k + chunk.length == p_.k;
    int64_t kernel_rows = 0;
    GemmTileEntry kernel = nullptr;
    for (int64_t s = first_strip; s < first_strip + strips; ++s) {
      const int64_t rows = plan_.strips.size(s), first_row = plan_.strips.begin(s);
      if (rows != kernel_rows) kernel = kernel_for_rows(kernel_rows = rows);
      std::byte* c = at(c_, p_.c_dtype,
                        first_row * p_.c_row_stride + plan_.panels.begin(panel) * plan_.lanes * p_.c_column_stride);
      call.a = packed_a_ + packed_offset(x, s) * size_;
      call.c = direct ? c : tile;
      call.c_stride = direct ? p_.c_row_stride : width;
      call.stack = stacks + (plan_.chunks.size() > 1 ? (s - first_strip) * stack_bytes : 0) +
                   chunk.pending * rows * width * size_;
      kernel(&call);
      if (!direct && call.is_last)
        store_tile(tile, p_.compute, width, rows, columns, c, p_.c_dtype, p_.c_row_stride, p_.c_column_stride);
    }
  }
}

void GemmRun::run() {
  const int64_t strip_items = plan_.strips.largest() * p_.k;
  const int64_t strip_bytes = (strip_items + static_cast<int64_t>(plan_.chunks.size()) * kPackSlack) * size_;
  const int64_t all = plan_.strips.parts;
  const int64_t block = all * strip_bytes <= kWholeABytes ? all : std::max<int64_t>(kBlockABytes / strip_bytes, 1);
  packed_a_ = gemm_workspaces().a.reserve(block * strip_bytes);
  for (block_strip_ = 0; block_strip_ < all; block_strip_ += block) {
    const int64_t strips = block_strips_ = std::min(block, all - block_strip_);
    pool_.parallel_for(strips, kWorthPacking / strip_items + 1,
                       [&](int64_t begin, int64_t end) { pack_strips(block_strip_ + begin, end - begin); });

    // Few panels: their strips are shared out as well.
    const int64_t wanted = plan_.tasks_per_thread * pool_.threads();
    const int64_t groups = std::clamp<int64_t>((wanted + plan_.panels.parts - 1) / plan_.panels.parts, 1, strips);
    const EvenSplit group = EvenSplit::at_most(strips, (strips + groups - 1) / groups);
    const int64_t tasks = plan_.panels.parts * group.parts;
    const int64_t work = group.largest() * strip_items * plan_.panels.largest() * plan_.lanes;
    pool_.parallel_for(tasks, kWorthATask / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t g = t % group.parts;
        run_panel(t / group.parts, block_strip_ + group.begin(g), group.size(g));
      }
    });
  }
}

void check_operand(const char* name, DType dtype) {
  TUTTI_CHECK(dtype <= DType::f16, "gemm: {} is {}; expected f64, f32, bf16 or f16", name, name_of(dtype));
}

DType compute_type(const GemmOperand& a, const GemmOperand& b) {
  return a.dtype == DType::f64 || b.dtype == DType::f64 ? DType::f64 : DType::f32;
}

void store_identity(const GemmBatch& batch, int64_t m, int64_t n, const GemmResult& c) {
  for (int64_t x = 0; x < batch.count; ++x)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        store_from_double(at(c.data, c.dtype, x * batch.c_stride + i * c.row_stride + j), c.dtype, -0.0);
}

ThreadPool& pool_of(const GemmOptions& options) {
  return options.pool ? *options.pool : ThreadPool::current();
}
GemmChooser& chooser_of(const GemmOptions& options) {
  return options.chooser ? *options.chooser : process_gemm_chooser();
}

}  // namespace

void run_gemm(const GemmPlan& plan, ThreadPool& pool) {
  const GemmProblem& p = plan.problem;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t x = begin; x < end; ++x) {
      GemmRun(plan, at(p.a.data, p.a.dtype, x * p.batch.a_stride), at(p.b.data, p.b.dtype, x * p.batch.b_stride),
              at(p.c, p.c_dtype, x * p.batch.c_stride), pool)
          .run();
    }
  };
  if (p.batch.count < pool.threads())
    run(0, p.batch.count);
  else
    pool.parallel_for(p.batch.count, kWorthATask / (p.m * p.n * p.k) + 1, run);
}

std::string describe_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
                          const ContractionTree& tree, const GemmOptions& options) {
  if (m == 0 || n == 0 || k == 0) return "no products";
  const DType compute = compute_type(a, b);
  const GemmProblem problem{m, n, k, a, b, c.data, c.dtype, c.row_stride, 1, {}, compute, options.target};
  const GemmPlan plan(problem, tree, chooser_of(options).known(problem, pool_of(options).threads()));
  return fmt::format("tree gemm {} {}, tiles {}x{}, {} chunk{} of k, b {}{}", name_of(options.target), name_of(compute),
                     plan.strips.largest(), plan.panels.largest() * plan.lanes, plan.chunks.size(), plan.chunks.size() == 1 ? "" : "s",
                     plan.b_in_place ? "in place" : "packed", plan.problem.m == m ? "" : ", transposed");
}

void batched_gemm(const GemmBatch& batch, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                  const GemmResult& c, const ContractionTree& tree, const GemmOptions& options) {
  TUTTI_CHECK(m >= 0 && n >= 0 && k >= 0 && batch.count >= 0,
              "gemm: m = {}, n = {}, k = {}, batch of {}; sizes must not be negative", m, n, k, batch.count);
  check_operand("a", a.dtype);
  check_operand("b", b.dtype);
  check_operand("c", c.dtype);
  TUTTI_CHECK_EQ(tree.k(), k, "gemm: the contraction tree has another number of elements than k");
  if (m == 0 || n == 0 || batch.count == 0) return;
  if (k == 0) return store_identity(batch, m, n, c);

  // A batch that shares B and whose rows follow each other is one tall problem.
  if (batch.count > 1 && batch.b_stride == 0 && batch.a_stride == m * a.row_stride &&
      batch.c_stride == m * c.row_stride)
    return batched_gemm({}, m * batch.count, n, k, a, b, c, tree, options);

  const DType compute = compute_type(a, b);
  const GemmProblem problem{m, n, k, a, b, c.data, c.dtype, c.row_stride, 1, batch, compute, options.target};
  ThreadPool& pool = pool_of(options);
  if (!is_worth_choosing(problem)) return run_gemm(GemmPlan(problem, tree, usual_cut(problem)), pool);
  // Measuring runs the problem itself: every cut writes all of C, and the same bits.
  const GemmCut cut = chooser_of(options).choose(
      problem, pool.threads(), [&](const GemmCut& candidate) { run_gemm(GemmPlan(problem, tree, candidate), pool); });
  run_gemm(GemmPlan(problem, tree, cut), pool);
}

void gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
          const ContractionTree& tree, const GemmOptions& options) {
  batched_gemm({}, m, n, k, a, b, c, tree, options);
}

}  // namespace tutti::codegen
