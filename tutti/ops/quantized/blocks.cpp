#include "tutti/ops/quantized/blocks.h"

#include <algorithm>

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/core/error.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reshape.h"

namespace tutti::quantized {
namespace {

constexpr BlockFormat kFormats[] = {BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q5_0, BlockFormat::q5_1,
                                    BlockFormat::q8_0, BlockFormat::q4_k, BlockFormat::q5_k, BlockFormat::q6_k};

bool has_dense_rows(const Tensor& blocks) {
  int64_t dense = 1;
  for (size_t d = blocks.extents().size() - 1; d > 0; --d) {
    if (blocks.extents()[d] > 1 && blocks.strides()[d] != dense) return false;
    dense *= blocks.extents()[d];
  }
  return true;
}

int64_t bytes_of_row(const Tensor& blocks) {
  int64_t nbytes = 1;
  for (size_t d = 1; d < blocks.extents().size(); ++d) nbytes *= blocks.extents()[d];
  return nbytes;
}

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

void check_blocks(const char* op, const Tensor& blocks, BlockFormat format, int ndim) {
  const BlockFormatRow& row = row_of(format);
  TUTTI_CHECK(codegen::can_multiply(format),
              "{}: weights of {} stay quantized in no op; expected Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K or Q6_K", op,
              row.name);
  TUTTI_CHECK(blocks.defined() && blocks.dtype() == DType::u8 && blocks.ndim() == ndim,
              "{}: the blocks are {}; expected u8 [{}rows, bytes of a row]", op, describe(blocks),
              ndim == 3 ? "matrices, " : "");
  TUTTI_CHECK(floordiv(blocks.size(-1), row.nbytes) * row.nbytes == blocks.size(-1),
              "{}: rows of {} bytes are not whole {} blocks of {} bytes", op, blocks.size(-1), row.name, row.nbytes);
}

DType product_dtype(const char* op, const Tensor& x, std::optional<DType> out_dtype) {
  const auto is_result = [](DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; };
  TUTTI_CHECK(x.defined() && is_result(x.dtype()), "{}: x is {}; expected f32, bf16 or f16", op, describe(x));
  const DType dtype = out_dtype.value_or(x.dtype());
  TUTTI_CHECK(is_result(dtype), "{}: a result of {}; expected f32, bf16 or f16", op, name_of(dtype));
  return dtype;
}

SymInt elements_of_row(SymInt nbytes, BlockFormat format) {
  const BlockFormatRow& row = row_of(format);
  return floordiv(nbytes, row.nbytes) * row.elements;
}

Tensor in_blocks(const Tensor& x, BlockFormat format) {
  const int32_t elements = row_of(format).elements;
  SymInt rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.size(d);
  return reshape(x, {rows, floordiv(x.size(-1), elements), elements});
}

Tensor bytes_in_blocks(const Tensor& blocks, BlockFormat format) {
  const int32_t nbytes = row_of(format).nbytes;
  Shape sizes = blocks.sizes();
  sizes.back() = floordiv(sizes.back(), nbytes);
  sizes.push_back(nbytes);
  return reshape(blocks, sizes);
}

BlockFormat format_of_blocks(const Tensor& blocks) {
  const int64_t nbytes = blocks.extents().back();
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](BlockFormat f) { return row_of(f).nbytes == nbytes; });
  TUTTI_ASSERT(found != std::end(kFormats), "no blocks have {} bytes", nbytes);
  return *found;
}

BlockRows::BlockRows(const Tensor& blocks)
    : held(has_dense_rows(blocks) ? blocks : to_contiguous(blocks)),
      data(static_cast<const std::byte*>(held.raw_data())),
      stride(held.strides()[0]),
      nbytes(bytes_of_row(held)) {}

Tensor sample_blocks(uint64_t seed, BlockFormat format, int64_t rows, int64_t elements) {
  const BlockFormatRow& row = row_of(format);
  const int64_t blocks = elements / row.elements;
  const Tensor all = facets::sample_tensor(seed, {rows, blocks * row.nbytes}, DType::u8, 0, 256);
  for (int64_t b = 0; b < rows * blocks; ++b) make_ordinary(format, all.data<uint8_t>() + b * row.nbytes);
  return all;
}

}  // namespace tutti::quantized
