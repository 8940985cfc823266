// Strips of A in the order the tiles of a plan read them, packed from memory or from what a producer makes. Private to
// gemm_run.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/codegen/gemm/plan.h"

namespace tutti::codegen {

// The part of A that is packed at the same time.
struct GemmStripBlock {
  int64_t first_strip, strips;
  size_t first_chunk, end_chunk;
};

class GemmStrips {
 public:
  // index: in the plan's batch.
  GemmStrips(const GemmPlan& plan, int64_t index, const GemmProducer* producer);

  // Bytes of a strip with so many items of k in so many chunks.
  int64_t strip_bytes(int64_t items, int64_t chunks) const;

  // Memory of the calling thread for the strips of a block, which ends the block before.
  void begin(const GemmStripBlock& block);
  // Some strips of the block, from any thread.
  void pack(int64_t first_strip, int64_t strips) const;
  // A packed strip: chunk.items times its rows.
  const std::byte* strip(size_t chunk_index, int64_t strip) const {
    return packed_ + packed_offset(chunk_index, strip) * size_;
  }

 private:
  // The location of a part of A.
  struct Part {
    const void* data;
    DType dtype;
    int64_t row_stride, column_stride;
  };
  void produce_strips(int64_t first_strip, int64_t strips) const;
  void pack_piece(size_t chunk_index, int32_t source, int64_t first_k, int64_t length, int64_t place,
                  int64_t first_strip, int64_t end_strip) const;
  Part part_at(const GemmOperand& a, int64_t strip, int64_t k) const;
  Part produce(int64_t first_strip, int64_t end_strip, int64_t first_k, int64_t length) const;
  void pack_part(size_t chunk_index, int64_t place, int64_t length, int64_t first_strip, int64_t end_strip,
                 const Part& part) const;
  int64_t packed_offset(size_t chunk_index, int64_t strip) const;

  const GemmPlan& plan_;
  const GemmProblem& p_;
  const int64_t index_;
  const GemmProducer* producer_;
  const int64_t size_;
  std::byte* packed_ = nullptr;
  GemmStripBlock block_{};
};

}  // namespace tutti::codegen
