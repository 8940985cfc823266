#include "tutti/codegen/gemm/stream.h"

#include <algorithm>

#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/gemm/pack.h"
#include "tutti/codegen/gemm/stream_columns.h"
#include "tutti/codegen/gemm/stream_leaves.h"
#include "tutti/codegen/gemm/stream_narrow.h"
#include "tutti/codegen/gemm/stream_wide.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Elements of B below which tiles that read B in place, or packed, are as fast.
constexpr int64_t kWorthStreaming = int64_t{1} << 18;
// Rows up to which streaming a B with neighbouring columns is faster than tiles that read it in place. Narrow tiles
// read rows of B that meet in the cache more often than they stay there: then as many rows as would leave it in place.
constexpr int64_t kFewRows = 2, kFewWideRows = 1;
// The rows up to which a B with neighbouring k is streamed, which transposes it in registers for every four of them;
// with more, packing it once is as fast. For few of them a small B is not packed.
constexpr int64_t kMostLeafRows = 6, kMostWideLeafRows = 8, kFewLeafRows = 3, kWorthLeaves = int64_t{1} << 15;
// Leaves for lanes: shorter or more uneven ones leave too much to what is done lane by lane.
constexpr int32_t kShortestLeaf = 16, kUneven = 8;
// Sums of a block of columns stay in the first-level cache with the rows of B that are added, unless that makes pieces
// of rows so short that the processor does not see the next one coming.
constexpr int64_t kSumsBytes = 8 << 10, kShortestPiece = 256;
constexpr int64_t kFewestColumns = 64, kLeafColumns = 64;
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 15;

// Types of B that are streamed: narrow ones only into f32. A product in f64 of a narrow B is rare, and its loops would
// take as long to compile as those of all other types.
bool has_loops(const GemmProblem& p) { return p.compute != DType::f64 || p.b.dtype == DType::f64; }

// Calls fn with the arithmetic for a kind of tile and a stored B.
template <class Fn>
void visit_arithmetic(TileKind kind, DType stored, Fn&& fn) {
  if (kind == TileKind::bf16_pairs) return fn.template operator()<stream::PairsOnUnits>();
  if (kind == TileKind::bf16_chain) return fn.template operator()<stream::PairsByFma>();
  switch (stored) {
    case DType::f64:
      return fn.template operator()<stream::Elements<double, double>>();
    case DType::bf16:
      return fn.template operator()<stream::Elements<float, bfloat16>>();
    case DType::f16:
      return fn.template operator()<stream::Elements<float, float16>>();
    default:
      return fn.template operator()<stream::Elements<float, float>>();
  }
}

// Whether lanes can be leaves: squares reach back into a leaf, and pairs of all lanes end together.
bool has_lanes_of(const ContractionTree& tree, TileKind kind) {
  if (!stream::joins_neighbours(tree)) return false;
  const auto [shortest, longest] = std::minmax_element(tree.leaf_lengths.begin(), tree.leaf_lengths.end());
  if (*shortest < kShortestLeaf) return false;
  return *longest - *shortest <= (takes_pairs(kind) ? 0 : kUneven);
}

GemmStream stream_as_it_stands(const GemmProblem& p, const ContractionTree& tree) {
  if (!has_loops(p)) return GemmStream::none;
  const int64_t size = p.k * p.n;
  if (p.b.column_stride == 1 && p.n >= kFewestColumns) {
    if (size < kWorthStreaming) return GemmStream::none;
    const bool is_wide = has_wide_registers(p.target);
    const int64_t most = is_wide                   ? kFewWideRows
                         : rows_meet_in_cache(p.b) ? most_rows_in_place(p.b, p.target)
                                                   : kFewRows;
    return p.m <= most ? GemmStream::columns : GemmStream::none;
  }
  if (p.b.row_stride != 1 || p.m > (has_wide_registers(p.target) ? kMostWideLeafRows : kMostLeafRows))
    return GemmStream::none;
  if (size < (p.m <= kFewLeafRows ? kWorthLeaves : kWorthStreaming)) return GemmStream::none;
  return has_lanes_of(tree, p.kind()) ? GemmStream::leaves : GemmStream::none;
}

// The few rows first.
bool is_turned(const GemmProblem& p) { return p.n < p.m; }

// One problem of the batch, few rows first.
class StreamRun {
 public:
  StreamRun(const GemmProblem& p, bool is_turned, int64_t index, const ContractionTree& tree,
            const GemmConsumer* consumer)
      : p_(p),
        is_turned_(is_turned),
        index_(index),
        tree_(tree),
        consumer_(consumer),
        kind_(p.kind()),
        size_(item_bytes(kind_)) {}

  void run(GemmStream stream, ThreadPool& pool);

 private:
  // x: packed.
  template <class A>
  void run_columns(const typename A::Sum* x, ThreadPool& pool) const;
  template <class A, class Form>
  void run_leaves(const typename A::Sum* x, ThreadPool& pool) const;
  // fn(first column, columns) for blocks of at most `widest` columns.
  template <class Fn>
  void for_each_block(int64_t widest, ThreadPool& pool, Fn fn) const;
  void store(const void* tile, int64_t tile_stride, int64_t column, int64_t columns) const;

  template <class S>
  const S* b(int64_t column) const {
    return static_cast<const S*>(p_.b.data) + index_ * p_.batch.b_stride + column * p_.b.column_stride;
  }

  const GemmProblem& p_;
  const bool is_turned_;
  const int64_t index_;
  const ContractionTree& tree_;
  const GemmConsumer* consumer_;
  const TileKind kind_;
  const int64_t size_;
};

void StreamRun::store(const void* tile, int64_t tile_stride, int64_t column, int64_t columns) const {
  std::byte* to = static_cast<std::byte*>(p_.c);
  int64_t row_stride = p_.c_row_stride, column_stride = p_.c_column_stride;
  if (to) {
    to += (index_ * p_.batch.c_stride + column * column_stride) * itemsize(p_.c_dtype);
  } else {
    to = gemm_workspaces().block.reserve(p_.m * columns * itemsize(p_.c_dtype));
    row_stride = is_turned_ ? 1 : columns;
    column_stride = is_turned_ ? p_.m : 1;
  }
  store_tile(tile, sum_dtype(kind_), tile_stride, p_.m, columns, to, p_.c_dtype, row_stride, column_stride);
  if (!consumer_) return;
  if (is_turned_) (*consumer_)({index_ * p_.n + column, columns, 0, p_.m, to, column_stride});
  else (*consumer_)({index_ * p_.m, p_.m, column, columns, to, row_stride});
}

template <class Fn>
void StreamRun::for_each_block(int64_t widest, ThreadPool& pool, Fn fn) const {
  const int64_t lanes = 32 / size_, registers = (p_.n + lanes - 1) / lanes;
  const int64_t shared = std::max<int64_t>((registers + pool.threads() - 1) / pool.threads(), 1);
  const EvenSplit blocks = EvenSplit::at_most(registers, std::min(std::max<int64_t>(widest / lanes, 1), shared));
  pool.parallel_for(blocks.parts, kWorthATask / (p_.m * p_.k * blocks.largest() * lanes) + 1,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t column = blocks.begin(i) * lanes;
                        fn(column, std::min(blocks.size(i) * lanes, p_.n - column));
                      }
                    });
}

template <class A>
void StreamRun::run_columns(const typename A::Sum* x, ThreadPool& pool) const {
  using T = typename A::Sum;
  constexpr int64_t kLanes = A::Block::kSide;
  const int64_t widest = std::max(kSumsBytes / (p_.m * size_), kShortestPiece), depth = tree_.depth();
  for_each_block(widest, pool, [&](int64_t column, int64_t columns) {
    const int64_t width = (columns + kLanes - 1) / kLanes * kLanes;
    T* sums = reinterpret_cast<T*>(gemm_workspaces().stack.reserve((depth + 1) * p_.m * width * size_));
    stream::ColumnBlock<A>{x, p_.m, b<typename A::Stored>(column), p_.b.row_stride, columns, width}.run(tree_, sums);
    store(sums, width, column, columns);
  });
}

template <class A, class Form>
void StreamRun::run_leaves(const typename A::Sum* x, ThreadPool& pool) const {
  using T = typename A::Sum;
  const stream::LeafLanes<A, Form> lanes(tree_, x, p_.m, gemm_workspaces().b);
  for_each_block(kLeafColumns, pool, [&](int64_t column, int64_t columns) {
    T* y = reinterpret_cast<T*>(gemm_workspaces().tile.reserve(p_.m * columns * size_));
    lanes.run(b<typename A::Stored>(column), p_.b.column_stride, columns, y, columns, gemm_workspaces().stack);
    store(y, columns, column, columns);
  });
}

void StreamRun::run(GemmStream stream, ThreadPool& pool) {
  const void* a = static_cast<const std::byte*>(p_.a.data) + index_ * p_.batch.a_stride * itemsize(p_.a.dtype);
  void* x = gemm_workspaces().a.reserve((p_.m * p_.k + kPackSlack) * size_);  // an item holds one k or more
  pack_leaves({a, p_.a.dtype, p_.a.column_stride, p_.a.row_stride}, tree_.leaf_lengths, p_.m, kind_, PackSide::a, x,
              p_.m);
  visit_arithmetic(kind_, p_.b.dtype, [&]<class A>() {
    const auto* packed = static_cast<const typename A::Sum*>(x);
    if (stream == GemmStream::columns) return run_columns<A>(packed, pool);
    if constexpr (A::kHasWideLeaves) {
      if (has_wide_registers(p_.target)) return run_leaves<A, stream::WideLeaves<A>>(packed, pool);
    }
    run_leaves<A, stream::NarrowLeaves<A>>(packed, pool);
  });
}

}  // namespace

GemmStream stream_of(const GemmProblem& p, const ContractionTree& tree) {
  return stream_as_it_stands(is_turned(p) ? transposed(p) : p, tree);
}

void stream_gemm(const GemmProblem& asked, const ContractionTree& tree, ThreadPool& pool,
                 const GemmConsumer* consumer) {
  const bool turned = is_turned(asked);
  const GemmProblem p = turned ? transposed(asked) : asked;
  const GemmStream stream = stream_as_it_stands(p, tree);
  for (int64_t index = 0; index < p.batch.count; ++index) StreamRun(p, turned, index, tree, consumer).run(stream, pool);
}

}  // namespace tutti::codegen
