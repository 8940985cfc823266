// Tensors of quantized blocks: u8 [rows, bytes of a row], as GGUF files hold them, or [matrices, rows, bytes of a row].
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tutti/core/block_format.h"
#include "tutti/tensor/tensor.h"

namespace tutti::quantized {

// UsageError, naming `op`, unless `blocks` is u8 with so many dims and its rows are whole blocks of a format whose
// products are computed here.
void check_blocks(const char* op, const Tensor& blocks, BlockFormat format, int ndim = 2);
// The dtype of a product of x, that of x unless `out_dtype` says another. UsageError, naming `op`, unless both are f32,
// bf16 or f16.
DType product_dtype(const char* op, const Tensor& x, std::optional<DType> out_dtype);
// Elements of a row of `nbytes` bytes.
SymInt elements_of_row(SymInt nbytes, BlockFormat format);

// Products are ops on tensors whose rows are cut into blocks, so that sharding rules can name the blocks of a row:
// [.., elements of a row] as [rows, blocks, elements of a block], and [.., bytes of a row] as [.., blocks, bytes of a
// block]. Both are views where the rows are dense.
Tensor in_blocks(const Tensor& x, BlockFormat format);
Tensor bytes_in_blocks(const Tensor& blocks, BlockFormat format);

// The format of bytes_in_blocks(): formats differ in the bytes of a block.
BlockFormat format_of_blocks(const Tensor& blocks);

// The bytes of a row, which are read in place if they are neighbours.
struct BlockRows {
  // blocks [rows, bytes of a row] or [rows, blocks, bytes of a block]
  explicit BlockRows(const Tensor& blocks);
  std::span<const std::byte> row(int64_t index) const { return {data + index * stride, static_cast<size_t>(nbytes)}; }
  const Tensor held;  // the tensor, or a dense copy
  const std::byte* data;
  int64_t stride, nbytes;
};

// Blocks with random codes and ordinary scales, for samples and tests.
Tensor sample_blocks(uint64_t seed, BlockFormat format, int64_t rows, int64_t elements);
// The formats whose products are computed here.
std::span<const BlockFormat> block_formats();

// ---- The definition of a product
// ----------------------------------------------------------------------------------------

// A block as integers and scales: element e is d * scale[e] * code[e], plus m * minimum[e] where `adds_minimum` or less
// where `subtracts_minimum`.
struct PlainBlock {
  float d = 0, m = 0;
  bool adds_minimum = false, subtracts_minimum = false;
  std::vector<int> code, scale, minimum;
};
PlainBlock plain_block(BlockFormat format, const std::byte* bytes);

// A block of activations, quantized by the rules of codegen/blocks/activation_rows.h.
struct PlainActivations {
  float d = 0;
  std::vector<int> code;
};
PlainActivations plain_activations(std::span<const float> x);

// The sum over a row, in the order of numerics contract N12.
float plain_product(BlockFormat format, std::span<const std::byte> row, std::span<const float> x);

}  // namespace tutti::quantized
