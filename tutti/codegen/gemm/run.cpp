// The walk through one plan: packing, tiles, tasks.
#include <algorithm>

#include "tutti/codegen/gemm/decoded_block.h"
#include "tutti/codegen/gemm/pack.h"
#include "tutti/codegen/gemm/plan.h"
#include "tutti/codegen/gemm/strips.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Packed rows of A are read once per panel, from the last-level cache: all of A when it fits there, else blocks of
// rows, or of rows and k.
constexpr int64_t kWholeABytes = int64_t{10} << 20, kBlockABytes = int64_t{8} << 20;
// Rows of a block beside which packing a panel of B is a small part of the work.
constexpr int64_t kEnoughRows = 512;
// The sums of all tiles of a block of rows wait while k goes on, so that more rows share each packed panel of B.
constexpr int64_t kWaitingBytes = int64_t{64} << 20;
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 18;
constexpr int64_t kWorthPacking = int64_t{1} << 16;
// Rows of a block that a consumer gets: with its 48 columns of f32 a quarter of a first-level cache, and enough that a
// call of the consumer is small beside it.
constexpr int64_t kBlockRows = 64;

const std::byte* at(const void* data, DType dtype, int64_t element) {
  return static_cast<const std::byte*>(data) + element * itemsize(dtype);
}
std::byte* at(void* data, DType dtype, int64_t element) {
  return static_cast<std::byte*>(data) + element * itemsize(dtype);
}

// One GEMM of a plan: the plan's problem with the data of one batch element.
class GemmRun {
  struct BlockTarget;

 public:
  GemmRun(const GemmPlan& plan, int64_t index, ThreadPool& pool, const GemmConsumer* consumer,
          const GemmProducer* producer)
      : plan_(plan),
        p_(plan.problem),
        index_(index),
        a_(plan, index, producer),
        c_(p_.c ? at(p_.c, p_.c_dtype, index * p_.batch.c_stride) : nullptr),
        pool_(pool),
        consumer_(consumer),
        size_(item_bytes(plan.kind)) {}

  void run();

 private:
  // Blocks of A: rows, and whether k is cut for them.
  struct Blocks {
    int64_t strips;
    bool cuts_k;
  };
  Blocks choose_blocks() const;
  int64_t stack_bytes() const { return plan_.depth * plan_.largest_tile() * size_; }
  // The chunks of k behind `first` for which the block of rows stays near.
  size_t end_of_group(size_t first) const;
  void run_block();
  void run_panel(int64_t panel, int64_t first_strip, int64_t strips);
  // B of a chunk as the tile reads it, and the distance of its rows.
  GemmTileCall place_b(size_t chunk, int64_t panel, bool in_place);
  void hand_on(int64_t panel, int64_t first_strip, int64_t end_strip, const BlockTarget& c) const;

  const GemmPlan& plan_;
  const GemmProblem& p_;
  const int64_t index_;  // in the batch
  GemmStrips a_;
  std::byte* c_;  // null: not kept
  ThreadPool& pool_;
  const GemmConsumer* consumer_;
  const int64_t size_;
  GemmStripBlock block_{};        // what is packed of A
  std::byte* waiting_ = nullptr;  // stacks of all tiles of the block, when its k is cut
};

// Where the elements of some strips in a panel go, in the problem that is solved.
struct GemmRun::BlockTarget {
  std::byte* data;
  int64_t row_stride, column_stride;
};

GemmTileCall GemmRun::place_b(size_t chunk, int64_t panel, bool in_place) {
  const int64_t width = plan_.panels.size(panel) * plan_.lanes, first_column = plan_.panels.begin(panel) * plan_.lanes;
  if (plan_.decoder != nullptr) {
    auto* const packed =
        reinterpret_cast<float*>(gemm_workspaces().b.reserve((plan_.most_chunk_items() * width + kPackSlack) * size_));
    (*plan_.decoder)({plan_.chunks[chunk].first_k, plan_.chunks[chunk].length, first_column, plan_.panel_columns(panel),
                      packed, width});
    GemmTileCall call{};
    call.b = packed;
    call.b_stride = width;
    return call;
  }
  const auto place_in = [&](const GemmOperand& b, int64_t first_k) {
    return at(b.data, b.dtype, index_ * p_.batch.b_stride + first_k * b.row_stride + first_column * b.column_stride);
  };
  GemmTileCall call{};
  call.b = place_in(p_.b, plan_.chunks[chunk].first_k);
  call.b_stride = p_.b.row_stride;
  if (in_place) return call;
  std::byte* const packed = gemm_workspaces().b.reserve((plan_.most_chunk_items() * width + kPackSlack) * size_);
  const int64_t columns = plan_.panel_columns(panel);
  plan_.for_each_piece(chunk, [&](int32_t source, int64_t first_k, int64_t length, int64_t place) {
    const GemmOperand& b = plan_.b_of(source);
    pack({place_in(b, first_k), b.dtype, b.row_stride, b.column_stride}, length, columns, plan_.kind, PackSide::b,
         packed + place * width * size_, width);
  });
  call.b = packed;
  call.b_stride = width;
  return call;
}

void GemmRun::hand_on(int64_t panel, int64_t first_strip, int64_t end_strip, const BlockTarget& c) const {
  const int64_t row = plan_.strips.begin(first_strip), rows = plan_.strips.begin(end_strip) - row;
  const int64_t column = plan_.panels.begin(panel) * plan_.lanes, columns = plan_.panel_columns(panel);
  if (plan_.transposed) (*consumer_)({index_ * p_.n + column, columns, row, rows, c.data, c.column_stride});
  else (*consumer_)({index_ * p_.m + row, rows, column, columns, c.data, c.row_stride});
}

void GemmRun::run_panel(int64_t panel, int64_t first_strip, int64_t strips) {
  const int64_t columns = plan_.panel_columns(panel), vectors = plan_.panels.size(panel);
  const int64_t width = vectors * plan_.lanes;
  const bool in_place = plan_.b_in_place && columns == width;
  GemmWorkspaces& mine = gemm_workspaces();
  const int64_t block_strips = std::max<int64_t>(kBlockRows / plan_.strips.largest(), 1);
  const auto block_begin = [&](int64_t strip) { return strip - (strip - first_strip) % block_strips; };
  BlockTarget c{c_, p_.c_row_stride, p_.c_column_stride};
  if (c_ == nullptr) {
    const int64_t block_rows = block_strips * plan_.strips.largest();
    c.data = mine.block.reserve(block_rows * width * itemsize(p_.c_dtype));
    c.row_stride = plan_.transposed ? 1 : width;
    c.column_stride = plan_.transposed ? block_rows : 1;
  }
  const auto place_of = [&](int64_t strip) {
    const int64_t row = plan_.strips.begin(strip);
    if (c_ == nullptr) return at(c.data, p_.c_dtype, (row - plan_.strips.begin(block_begin(strip))) * c.row_stride);
    return at(c.data, p_.c_dtype, row * c.row_stride + plan_.panels.begin(panel) * plan_.lanes * c.column_stride);
  };
  const bool direct =
      p_.c_dtype == sum_dtype(plan_.kind) && c.column_stride == 1 && (columns == width || c_ == nullptr);
  // A strip's pending tiles wait for the next chunk.
  const int64_t next_stack = plan_.chunks.size() > 1 ? stack_bytes() : 0;
  std::byte* const stacks = waiting_
                                ? waiting_ + (panel * block_.strips + first_strip - block_.first_strip) * next_stack
                                : mine.stack.reserve(stack_bytes() * (plan_.chunks.size() > 1 ? strips : 1));
  std::byte* tile = direct ? nullptr : mine.tile.reserve(plan_.largest_tile() * size_);

  const auto kernel_for_rows = [&](int64_t rows) {
    return gemm_tile_for({plan_.kind, in_place ? p_.b.dtype : packed_dtype(plan_.kind), static_cast<int32_t>(rows),
                          static_cast<int32_t>(vectors)},
                         p_.target);
  };
  for (size_t x = block_.first_chunk; x < block_.end_chunk; ++x) {
    const ContractionChunk& chunk = plan_.chunks[x];
    GemmTileCall call = place_b(x, panel, in_place);
    call.leaf_lengths = plan_.leaf_lengths(x).data();
    call.merges = plan_.tree.merges.data() + chunk.first_leaf;
    call.leaves = chunk.leaves;
    call.is_last = x + 1 == plan_.chunks.size();
    call.excess = plan_.excess == nullptr ? nullptr : plan_.excess + plan_.panels.begin(panel) * plan_.lanes;
    int64_t kernel_rows = 0;
    GemmTileEntry kernel = nullptr;
    for (int64_t s = first_strip; s < first_strip + strips; ++s) {
      const int64_t rows = plan_.strips.size(s);
      if (rows != kernel_rows) kernel = kernel_for_rows(kernel_rows = rows);
      std::byte* to = place_of(s);
      call.a = a_.strip(x, s);
      call.c = direct ? to : tile;
      call.c_stride = direct ? c.row_stride : width;
      call.stack = stacks + (s - first_strip) * next_stack + chunk.pending * rows * width * size_;
      kernel(&call);
      if (!call.is_last) continue;
      if (!direct)
        store_tile(tile, sum_dtype(plan_.kind), width, rows, columns, to, p_.c_dtype, c.row_stride, c.column_stride);
      const int64_t next = s + 1;
      if (consumer_ && (block_begin(next) == next || next == first_strip + strips))
        hand_on(panel, block_begin(s), next, {place_of(block_begin(s)), c.row_stride, c.column_stride});
    }
  }
}

GemmRun::Blocks GemmRun::choose_blocks() const {
  const int64_t all = plan_.strips.parts,
                whole = a_.strip_bytes(plan_.items, static_cast<int64_t>(plan_.chunks.size()));
  if (all * whole <= kWholeABytes) return {all, false};
  const int64_t near = std::max<int64_t>(kBlockABytes / whole, 1);
  const int64_t blocks = (all + near - 1) / near;
  if (near * plan_.strips.largest() >= kEnoughRows) return {(all + blocks - 1) / blocks, false};
  const int64_t waiting = std::min(kWaitingBytes / (plan_.panels.parts * stack_bytes()), all);
  // Cutting k pays when many more rows share what is packed of B.
  return plan_.chunks.size() > 1 && waiting >= 2 * near ? Blocks{waiting, true} : Blocks{near, false};
}

size_t GemmRun::end_of_group(size_t first) const {
  size_t end = first + 1;
  int64_t items = plan_.chunks[first].items;
  while (end < plan_.chunks.size()) {
    items += plan_.chunks[end].items;
    if (block_.strips * a_.strip_bytes(items, static_cast<int64_t>(end + 1 - first)) > kBlockABytes) break;
    ++end;
  }
  return end;
}

void GemmRun::run() {
  const Blocks blocks = choose_blocks();
  for (block_.first_strip = 0; block_.first_strip < plan_.strips.parts; block_.first_strip += blocks.strips) {
    block_.strips = std::min(blocks.strips, plan_.strips.parts - block_.first_strip);
    if (blocks.cuts_k) waiting_ = gemm_workspaces().waiting.reserve(block_.strips * plan_.panels.parts * stack_bytes());
    for (block_.first_chunk = 0; block_.first_chunk < plan_.chunks.size(); block_.first_chunk = block_.end_chunk) {
      block_.end_chunk = blocks.cuts_k ? end_of_group(block_.first_chunk) : plan_.chunks.size();
      run_block();
    }
  }
}

// The rows and the k that are set.
void GemmRun::run_block() {
  const ContractionChunk& last = plan_.chunks[block_.end_chunk - 1];
  const int64_t length = last.first_k + last.length - plan_.chunks[block_.first_chunk].first_k, strips = block_.strips;
  a_.begin(block_);
  const int64_t strip_elements = plan_.strips.largest() * length;
  pool_.parallel_for(strips, kWorthPacking / strip_elements + 1,
                     [&](int64_t begin, int64_t end) { a_.pack(block_.first_strip + begin, end - begin); });

  // Few panels: their strips are shared out as well.
  const int64_t wanted = plan_.tasks_per_thread * pool_.threads();
  const int64_t groups = std::clamp<int64_t>((wanted + plan_.panels.parts - 1) / plan_.panels.parts, 1, strips);
  const EvenSplit group = EvenSplit::at_most(strips, (strips + groups - 1) / groups);
  const int64_t tasks = plan_.panels.parts * group.parts;
  const int64_t work = group.largest() * strip_elements * plan_.panels.largest() * plan_.lanes;
  pool_.parallel_for(tasks, kWorthATask / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t g = t % group.parts;
      run_panel(t / group.parts, block_.first_strip + group.begin(g), group.size(g));
    }
  });
}

}  // namespace

void run_gemm(const GemmPlan& plan, ThreadPool& pool, const GemmConsumer* consumer, const GemmProducer* producer) {
  const GemmProblem& p = plan.problem;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t x = begin; x < end; ++x) GemmRun(plan, x, pool, consumer, producer).run();
  };
  if (p.batch.count < pool.threads()) run(0, p.batch.count);
  else pool.parallel_for(p.batch.count, kWorthATask / (p.m * p.n * p.k) + 1, run);
}

}  // namespace tutti::codegen
