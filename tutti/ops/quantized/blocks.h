// Tensors of quantized blocks: u8 [rows, bytes of a row], as GGUF files hold them.
#pragma once

#include <span>
#include <vector>

#include "tutti/core/block_format.h"
#include "tutti/tensor/tensor.h"

namespace tutti::quantized {

// UsageError, naming `op`, unless `blocks` is u8 with two dims and its rows are whole blocks of a format whose products
// are computed here.
void check_blocks(const char* op, const Tensor& blocks, BlockFormat format);
// Elements of a row of `nbytes` bytes.
SymInt elements_of_row(SymInt nbytes, BlockFormat format);

// The bytes of a row, which are read in place if they are neighbours.
struct BlockRows {
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
