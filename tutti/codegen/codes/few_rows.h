// Products of a few rows of numbers with codes that are decoded as they are read; what decode_lines.h and gemm() do for
// many rows. Chains and tree are those of numerics contract N3. Private to the products of codes.
#pragma once

#include <cstdint>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/workspace.h"

namespace tutti::codegen::codes {

// Partial sums that wait for their siblings, at most.
inline constexpr int32_t kMostPending = 48;
// Rows with registers of eight lanes, and with those of 16.
inline constexpr int64_t kNarrowRows = 4, kWideRows = 8;
inline int64_t most_few_rows() { return has_wide_registers(cpu_target()) ? kWideRows : kNarrowRows; }
// The columns of a pass.
inline constexpr int64_t kMostFewColumns = 64;
int64_t few_columns(int64_t rows);

// Rows of x as multiply_few() reads them.
struct FewRows {
  const float* x;  // narrow registers: [count][k], rows `stride` numbers apart; wide ones: [k][stride]
  int64_t stride;
  int64_t count;
};
// `memory` holds them where they are not in place.
FewRows few_rows(const float* x, int64_t stride, int64_t count, int64_t k, Workspace& memory);

// sums[r * few_columns() + j]: the totals of the rows of x with column j, of up to few_columns().
void multiply_few(const CodeColumns& c, const ByteLanes& lanes, const FewRows& x, const ContractionTree& tree,
                  float* sums);
void multiply_few(const CodeColumns& c, const E4m3Lanes& lanes, const FewRows& x, const ContractionTree& tree,
                  float* sums);
void multiply_few(const CodeColumns& c, const NibbleLanes& lanes, const FewRows& x, const ContractionTree& tree,
                  float* sums);

}  // namespace tutti::codegen::codes
