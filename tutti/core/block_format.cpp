#include "tutti/core/block_format.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr BlockFormatRow kRows[] = {
    {BlockFormat::f32, "F32", 1, 4, DType::f32},
    {BlockFormat::f16, "F16", 1, 2, DType::f16},
    {BlockFormat::q4_0, "Q4_0", 32, 18},
    {BlockFormat::q4_1, "Q4_1", 32, 20},
    {BlockFormat::q5_0, "Q5_0", 32, 22},
    {BlockFormat::q5_1, "Q5_1", 32, 24},
    {BlockFormat::q8_0, "Q8_0", 32, 34},
    {BlockFormat::q8_1, "Q8_1", 32, 36},
    {BlockFormat::q2_k, "Q2_K", 256, 84},
    {BlockFormat::q3_k, "Q3_K", 256, 110},
    {BlockFormat::q4_k, "Q4_K", 256, 144},
    {BlockFormat::q5_k, "Q5_K", 256, 176},
    {BlockFormat::q6_k, "Q6_K", 256, 210},
    {BlockFormat::q8_k, "Q8_K", 256, 292},
    {BlockFormat::iq2_xxs, "IQ2_XXS", 256, 66},
    {BlockFormat::iq2_xs, "IQ2_XS", 256, 74},
    {BlockFormat::iq3_xxs, "IQ3_XXS", 256, 98},
    {BlockFormat::iq1_s, "IQ1_S", 256, 50},
    {BlockFormat::iq4_nl, "IQ4_NL", 32, 18},
    {BlockFormat::iq3_s, "IQ3_S", 256, 110},
    {BlockFormat::iq2_s, "IQ2_S", 256, 82},
    {BlockFormat::iq4_xs, "IQ4_XS", 256, 136},
    {BlockFormat::i8, "I8", 1, 1, DType::i8},
    {BlockFormat::i16, "I16", 1, 2, DType::i16},
    {BlockFormat::i32, "I32", 1, 4, DType::i32},
    {BlockFormat::i64, "I64", 1, 8, DType::i64},
    {BlockFormat::f64, "F64", 1, 8, DType::f64},
    {BlockFormat::iq1_m, "IQ1_M", 256, 56},
    {BlockFormat::bf16, "BF16", 1, 2, DType::bf16},
    {BlockFormat::tq1_0, "TQ1_0", 256, 54},
    {BlockFormat::tq2_0, "TQ2_0", 256, 66},
    {BlockFormat::mxfp4, "MXFP4", 32, 17},
    {BlockFormat::nvfp4, "NVFP4", 64, 36},
    {BlockFormat::q1_0, "Q1_0", 128, 18},
    {BlockFormat::q2_0, "Q2_0", 64, 18},
};

const BlockFormatRow* find_row(auto&& holds) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows), holds);
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

const BlockFormatRow* find_block_format(uint32_t id) {
  return find_row([&](const BlockFormatRow& row) { return static_cast<uint32_t>(row.format) == id; });
}

const BlockFormatRow& row_of(BlockFormat format) {
  const BlockFormatRow* row = find_block_format(static_cast<uint32_t>(format));
  TUTTI_ASSERT(row != nullptr, "no block format has the id {}", static_cast<int>(format));
  return *row;
}

BlockFormat block_format_from_name(std::string_view name) {
  if (const auto* row = find_row([&](const BlockFormatRow& r) { return r.name == name; })) return row->format;
  std::vector<std::string> names;
  for (const BlockFormatRow& row : kRows) names.emplace_back(row.name);
  throw UsageError(unknown_name_message("block format", name, names));
}

std::optional<BlockFormat> block_format_of(DType dtype) {
  const auto* row = find_row([&](const BlockFormatRow& r) { return r.dtype == dtype; });
  return row == nullptr ? std::nullopt : std::optional(row->format);
}

std::optional<int64_t> block_nbytes(BlockFormat format, int64_t numel) {
  const BlockFormatRow& row = row_of(format);
  TUTTI_ASSERT(numel >= 0 && numel % row.elements == 0, "{} elements are no whole blocks of {}", numel, row.name);
  int64_t nbytes = 0;
  if (__builtin_mul_overflow(numel / row.elements, int64_t{row.nbytes}, &nbytes)) return std::nullopt;
  return nbytes;
}

}  // namespace tutti
