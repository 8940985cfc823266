#include "tutti/codegen/gemm/tile_product.h"

#include <algorithm>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/cut.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::codegen {
namespace {

const std::byte* moved(const void* data, int64_t nbytes) { return static_cast<const std::byte*>(data) + nbytes; }
std::byte* moved(void* data, int64_t nbytes) { return static_cast<std::byte*>(data) + nbytes; }

}  // namespace

int64_t whole_registers(int64_t columns, DType compute, CpuTarget target) {
  const int64_t lanes = gemm_lanes(target, compute);
  return (columns + lanes - 1) / lanes * lanes;
}

TileProduct::TileProduct(DType compute, int64_t rows, CpuTarget target)
    : kind_(tile_kind(compute, target)), rows_(rows), target_(target), lanes_(gemm_lanes(target, compute)) {
  const EvenSplit strips = EvenSplit::at_most(rows, codegen::most_rows(target));
  strips_ = strips.parts;
  most_vectors_ = codegen::most_vectors(target, strips.largest());
}

void TileProduct::pack(const PackSource& a, int64_t k, void* packed) const {
  const int32_t length = static_cast<int32_t>(k);
  pack(a, std::span(&length, 1), packed);
}

void TileProduct::pack(const PackSource& a, std::span<const int32_t> leaf_lengths, void* packed) const {
  const EvenSplit strips = EvenSplit::into(rows_, strips_);
  int64_t items = 0;
  for (const int32_t length : leaf_lengths) items += items_of(kind_, length);
  // In order: what is written behind a strip is overwritten by the next.
  for (int64_t s = 0; s < strips.parts; ++s) {
    const PackSource strip{moved(a.data, strips.begin(s) * a.lane_stride * itemsize(a.dtype)), a.dtype, a.k_stride,
                           a.lane_stride};
    pack_leaves(strip, leaf_lengths, strips.size(s), kind_, PackSide::a,
                moved(packed, strips.begin(s) * items * item_bytes(kind_)), strips.size(s));
  }
}

void TileProduct::run(const TileProductCall& p, DType storage) const {
  const EvenSplit strips = EvenSplit::into(rows_, strips_);
  const EvenSplit panels = EvenSplit::at_most(p.columns / lanes_, most_vectors_);
  const int64_t size = item_bytes(kind_);
  int64_t k = 0, items = 0;
  for (int64_t leaf = 0; leaf < p.leaves; ++leaf) {
    k += p.leaf_lengths[leaf];
    items += items_of(kind_, p.leaf_lengths[leaf]);
  }
  RankContext::current().product_flops.fetch_add(2 * rows_ * p.columns * k, std::memory_order_relaxed);
  GemmTileCall call{};
  call.b_stride = p.b_stride;
  call.c_stride = p.c_stride;
  call.leaf_lengths = p.leaf_lengths;
  call.merges = p.merges;
  call.leaves = p.leaves;
  call.is_last = p.is_last;
  for (int64_t panel = 0; panel < panels.parts; ++panel) {
    const int64_t column = panels.begin(panel) * lanes_, vectors = panels.size(panel), width = vectors * lanes_;
    const std::byte* panel_b = moved(p.b, column * itemsize(storage));
    int64_t kernel_rows = 0;
    GemmTileEntry kernel = nullptr;
    for (int64_t s = 0; s < strips.parts; ++s) {
      const int64_t row = strips.begin(s), rows = strips.size(s);
      if (rows != kernel_rows)
        kernel = gemm_tile_for(
            {kind_, storage, static_cast<int32_t>(kernel_rows = rows), static_cast<int32_t>(vectors)}, target_);
      call.a = moved(p.a, row * items * size);
      call.b = panel_b;
      call.leaf_lengths = p.leaf_lengths;
      int32_t length = 0;
      if (const TilePart part = p.part ? (*p.part)(row, rows, column, width) : TilePart{0, k};
          part.end - part.begin < k) {
        if (part.end <= part.begin && p.is_last) continue;
        TUTTI_ASSERT(p.leaves == 1, "a tile takes a part of {} leaves", p.leaves);
        length = static_cast<int32_t>(std::max<int64_t>(part.end - part.begin, 0));
        call.leaf_lengths = &length;
        const int64_t first = length > 0 ? part.begin : 0;
        call.a = moved(call.a, first * rows * size);
        call.b = moved(call.b, first * p.b_stride * itemsize(storage));
      }
      call.c = moved(p.c, (row * p.c_stride + column) * size);
      if (p.stack)
        call.stack = moved(p.stack, (p.depth * (row * p.columns + rows * column) + p.pending * rows * width) * size);
      kernel(&call);
    }
  }
}

PendingSums::Step PendingSums::next(bool exists, uint8_t merges) {
  const int64_t before = height_;
  uint8_t met = 0;
  for (; merges > 0; --merges) {
    met += exists_.back();
    exists_.pop_back();
  }
  exists_.push_back(exists || met > 0);
  // One sum and an absent leaf: the sum stays where it is, as the parent of both.
  const bool run = exists || met > 1;
  if (run) height_ += 1 - met;
  return {run, met, before};
}

}  // namespace tutti::codegen
