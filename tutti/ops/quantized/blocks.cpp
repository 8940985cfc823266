#include "tutti/ops/quantized/blocks.h"

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/core/error.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::quantized {
namespace {

constexpr BlockFormat kFormats[] = {BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q5_0, BlockFormat::q5_1,
                                    BlockFormat::q8_0, BlockFormat::q4_k, BlockFormat::q5_k, BlockFormat::q6_k};

bool has_dense_rows(const Tensor& blocks) { return blocks.extents()[1] <= 1 || blocks.strides()[1] == 1; }

// The upper bytes of the scales of a block, whose other bytes are random: magnitudes from 2^-7, or 2^-13 where these
// are multiplied by other scales.
void make_ordinary(BlockFormat format, uint8_t* block) {
  const int exponent = row_of(format).elements == 32 ? 0x20 : 0x08;
  const bool is_last = format == BlockFormat::q6_k;
  const bool has_two = format == BlockFormat::q4_1 || format == BlockFormat::q5_1 || format == BlockFormat::q4_k ||
                       format == BlockFormat::q5_k;
  uint8_t* upper = block + (is_last ? 209 : 1);
  *upper = static_cast<uint8_t>(exponent | (*upper & 0x83));
  if (has_two) block[3] = static_cast<uint8_t>(exponent | (block[3] & 0x83));
}

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }

void check_blocks(const char* op, const Tensor& blocks, BlockFormat format) {
  const BlockFormatRow& row = row_of(format);
  TUTTI_CHECK(codegen::can_multiply(format),
              "{}: weights of {} stay quantized in no op; expected Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K or Q6_K", op,
              row.name);
  TUTTI_CHECK(blocks.defined() && blocks.dtype() == DType::u8 && blocks.ndim() == 2,
              "{}: the blocks are {}; expected u8 [rows, bytes of a row]", op, describe(blocks));
  TUTTI_CHECK(floordiv(blocks.size(1), row.nbytes) * row.nbytes == blocks.size(1),
              "{}: rows of {} bytes are not whole {} blocks of {} bytes", op, blocks.size(1), row.name, row.nbytes);
}

SymInt elements_of_row(SymInt nbytes, BlockFormat format) {
  const BlockFormatRow& row = row_of(format);
  return floordiv(nbytes, row.nbytes) * row.elements;
}

BlockRows::BlockRows(const Tensor& blocks)
    : held(has_dense_rows(blocks) ? blocks : to_contiguous(blocks)),
      data(static_cast<const std::byte*>(held.raw_data())),
      stride(held.strides()[0]),
      nbytes(held.extents()[1]) {}

Tensor sample_blocks(uint64_t seed, BlockFormat format, int64_t rows, int64_t elements) {
  const BlockFormatRow& row = row_of(format);
  const int64_t blocks = elements / row.elements;
  const Tensor all = facets::sample_tensor(seed, {rows, blocks * row.nbytes}, DType::u8, 0, 256);
  for (int64_t b = 0; b < rows * blocks; ++b) make_ordinary(format, all.data<uint8_t>() + b * row.nbytes);
  return all;
}

}  // namespace tutti::quantized
