#include "tutti/codegen/gemm/strips.h"

#include <algorithm>

#include "tutti/codegen/gemm/pack.h"
#include "tutti/codegen/gemm/pack_strips.h"
#include "tutti/codegen/gemm/workspace.h"

namespace tutti::codegen {
namespace {

// Rows of a k-major A that stay in the first-level cache while strip after strip takes its part.
constexpr int64_t kNearK = 32;
static_assert(kNearK % 2 == 0, "pairs of k stay together");
// The part of A that a producer writes before it is packed: what it read is still in a near cache, and so is what it
// wrote.
constexpr int64_t kProducedBytes = int64_t{32} << 10;

const std::byte* moved(const void* data, int64_t nbytes) { return static_cast<const std::byte*>(data) + nbytes; }

}  // namespace

GemmStrips::GemmStrips(const GemmPlan& plan, int64_t index, const GemmProducer* producer)
    : plan_(plan), p_(plan.problem), index_(index), producer_(producer), size_(item_bytes(plan.kind)) {}

int64_t GemmStrips::strip_bytes(int64_t items, int64_t chunks) const {
  return (plan_.strips.largest() * items + chunks * kPackSlack) * size_;
}

void GemmStrips::begin(const GemmStripBlock& block) {
  const ContractionChunk& last = plan_.chunks[block.end_chunk - 1];
  const int64_t items = last.first_item + last.items - plan_.chunks[block.first_chunk].first_item;
  block_ = block;
  packed_ = gemm_workspaces().a.reserve(block.strips *
                                        strip_bytes(items, static_cast<int64_t>(block.end_chunk - block.first_chunk)));
}

// Chunk by chunk, strip by strip: the order of reading. Each has room for what packing writes behind it.
int64_t GemmStrips::packed_offset(size_t chunk_index, int64_t strip) const {
  const ContractionChunk& chunk = plan_.chunks[chunk_index];
  const int64_t first_row = plan_.strips.begin(block_.first_strip);
  const int64_t block_rows = plan_.strips.begin(block_.first_strip + block_.strips) - first_row;
  const int64_t slack =
      (static_cast<int64_t>(chunk_index - block_.first_chunk) * block_.strips + strip - block_.first_strip) *
      kPackSlack;
  return (chunk.first_item - plan_.chunks[block_.first_chunk].first_item) * block_rows +
         (plan_.strips.begin(strip) - first_row) * chunk.items + slack;
}

void GemmStrips::pack(int64_t first_strip, int64_t strips) const {
  const bool has_pieces = plan_.has_pieces();
  if (producer_ && p_.a.row_stride != 1 && !has_pieces) return produce_strips(first_strip, strips);
  // Pieces of rows are short: those of a few rows one behind the other are read as whole rows are.
  const int64_t together = has_pieces && p_.a.row_stride != 1 ? 1 : strips;
  for (int64_t begin = first_strip; begin < first_strip + strips; begin += together) {
    for (size_t x = block_.first_chunk; x < block_.end_chunk; ++x) {
      plan_.for_each_piece(x, [&](int32_t source, int64_t first_k, int64_t length, int64_t place) {
        pack_piece(x, source, first_k, length, place, begin, begin + together);
      });
    }
  }
}

// [first_k, first_k + length) of a source, which stands behind `place` items in its chunk. A producer makes the first
// source.
void GemmStrips::pack_piece(size_t chunk_index, int32_t source, int64_t first_k, int64_t length, int64_t place,
                            int64_t first_strip, int64_t end_strip) const {
  const GemmOperand& a = plan_.a_of(source);
  const bool is_produced = producer_ != nullptr && source == 0;
  // When rows are neighbours in memory, a cache line of A serves several strips: take them all while it is near.
  const int64_t longest = a.row_stride == 1 ? std::min(kNearK, length) : length;
  const int64_t near = kProducedBytes / (plan_.strips.largest() * longest * itemsize(a.dtype));
  const int64_t together =
      is_produced ? std::clamp<int64_t>(near, 1, end_strip - first_strip) : end_strip - first_strip;
  for (int64_t begin = first_strip; begin < end_strip; begin += together) {
    const int64_t end = std::min(begin + together, end_strip);
    for (int64_t k = 0; k < length; k += longest) {
      const int64_t now = std::min(longest, length - k);
      pack_part(chunk_index, place + items_of(plan_.kind, k), now, begin, end,
                is_produced ? produce(begin, end, first_k + k, now) : part_at(a, begin, first_k + k));
    }
  }
}

// Strip by strip, as much of k at once as stays near: what the producer reads are long pieces of rows.
void GemmStrips::produce_strips(int64_t first_strip, int64_t strips) const {
  for (int64_t s = first_strip; s < first_strip + strips; ++s) {
    const int64_t longest = kProducedBytes / (plan_.strips.size(s) * itemsize(p_.a.dtype));
    for (size_t x = block_.first_chunk, end; x < block_.end_chunk; x = end) {
      int64_t length = plan_.chunks[x].length;
      for (end = x + 1; end < block_.end_chunk && length + plan_.chunks[end].length <= longest; ++end)
        length += plan_.chunks[end].length;
      const int64_t first_k = plan_.chunks[x].first_k;
      Part part = produce(s, s + 1, first_k, length);
      const void* all = part.data;
      for (; x < end; ++x) {
        plan_.for_each_piece(x, [&](int32_t, int64_t piece_k, int64_t piece_length, int64_t place) {
          part.data = moved(all, (piece_k - first_k) * itemsize(p_.a.dtype));
          pack_part(x, place, piece_length, s, s + 1, part);
        });
      }
    }
  }
}

GemmStrips::Part GemmStrips::part_at(const GemmOperand& a, int64_t strip, int64_t k) const {
  const int64_t offset = index_ * p_.batch.a_stride + plan_.strips.begin(strip) * a.row_stride + k * a.column_stride;
  return {moved(a.data, offset * itemsize(a.dtype)), a.dtype, a.row_stride, a.column_stride};
}

GemmStrips::Part GemmStrips::produce(int64_t first_strip, int64_t end_strip, int64_t first_k, int64_t length) const {
  const int64_t first_row = plan_.strips.begin(first_strip), rows = plan_.strips.begin(end_strip) - first_row;
  const bool rows_are_neighbours = p_.a.row_stride == 1;
  const int64_t row_stride = rows_are_neighbours ? 1 : length, column_stride = rows_are_neighbours ? rows : 1;
  void* data = gemm_workspaces().produced.reserve(rows * length * itemsize(p_.a.dtype));
  (*producer_)({index_ * p_.m + first_row, rows, first_k, length, data, row_stride, column_stride});
  return {data, p_.a.dtype, row_stride, column_stride};
}

// `length` k, behind `place` items of the chunk. part: from the first row of the first strip and the first k on.
void GemmStrips::pack_part(size_t chunk_index, int64_t place, int64_t length, int64_t first_strip, int64_t end_strip,
                           const Part& part) const {
  const int64_t first_row = plan_.strips.begin(first_strip);
  int64_t s = first_strip;
  if (const int64_t rows = plan_.strips.size(s); plan_.strips.size(end_strip - 1) == rows) {
    const int64_t distance = (packed_offset(chunk_index, s + 1) - packed_offset(chunk_index, s)) * size_;
    s += pack_neighbouring_strips({part.data, part.dtype, part.column_stride, part.row_stride}, length, rows,
                                  end_strip - s, plan_.kind,
                                  packed_ + (packed_offset(chunk_index, s) + place * rows) * size_, distance);
  }
  for (; s < end_strip; ++s) {
    const int64_t rows = plan_.strips.size(s);
    const void* from = moved(part.data, (plan_.strips.begin(s) - first_row) * part.row_stride * itemsize(part.dtype));
    codegen::pack({from, part.dtype, part.column_stride, part.row_stride}, length, rows, plan_.kind, PackSide::a,
                  packed_ + (packed_offset(chunk_index, s) + place * rows) * size_, rows);
  }
}

}  // namespace tutti::codegen
