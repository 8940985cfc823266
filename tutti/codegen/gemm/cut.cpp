#include "tutti/codegen/gemm/cut.h"

#include <algorithm>
#include <utility>

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

// Panels of 48 columns of f32 then take a tenth of a second-level cache of 1 MiB.
constexpr uint16_t kChunkBytes = 2048;
constexpr int64_t kWidestTile = 8;
constexpr uint8_t kTasksPerThread = 4;

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

GemmOperand transposed_operand(const GemmOperand& operand) {
  return {operand.data, operand.dtype, operand.column_stride, operand.row_stride};
}

GemmProblem transposed(const GemmProblem& p) {
  GemmProblem t = p;
  std::swap(t.m, t.n);
  t.a = transposed_operand(p.b);
  t.b = transposed_operand(p.a);
  std::swap(t.c_row_stride, t.c_column_stride);
  std::swap(t.batch.a_stride, t.batch.b_stride);
  return t;
}

int64_t most_rows(CpuTarget target) { return has_wide_registers(target) ? 8 : 6; }

// As many as leave registers for a row of B and one element of A.
int64_t most_vectors(CpuTarget target, int64_t rows) {
  const int64_t registers = has_wide_registers(target) ? 32 : 16;
  return std::min((registers - 2) / (rows + 1), kWidestTile);
}

bool can_stay_in_place(const GemmProblem& p, bool turn) {
  const DType dtype = turn ? p.a.dtype : p.b.dtype;
  const bool has_loads = !is_integer(p.kind()) && (p.compute == DType::bf16 || compute_dtype(dtype) == p.compute);
  return (turn ? p.a.row_stride : p.b.column_stride) == 1 && has_loads;
}

bool rows_meet_in_cache(const GemmOperand& operand) { return operand.row_stride * itemsize(operand.dtype) % 4096 == 0; }

int64_t most_rows_in_place(const GemmOperand& b, CpuTarget target) {
  if (has_wide_registers(target)) return rows_meet_in_cache(b) ? 48 : 128;
  return rows_meet_in_cache(b) ? 16 : 32;
}

GemmCut usual_cut(const GemmProblem& p) {
  // Fewer columns than lanes leave lanes idle; rows are cheaper to have few of. a*b is b*a: the bits stay.
  const int64_t lanes = gemm_lanes(p.target, p.compute);
  const bool turn = p.n < lanes && p.m * rounded_up(p.n, lanes) > p.n * rounded_up(p.m, lanes);
  const int64_t m = turn ? p.n : p.m, most = most_rows(p.target);
  // Rows of bf16 that are read in place are made pairs for each strip again.
  const bool in_place = p.kind() != TileKind::bf16_pairs && can_stay_in_place(p, turn) &&
                        m <= most_rows_in_place(turn ? transposed_operand(p.a) : p.b, p.target);
  // The smallest products take 0.2 us: a division less counts.
  const int64_t rows = !in_place ? most : m <= most ? m : EvenSplit::at_most(m, most).largest();
  return {turn,        in_place,       static_cast<uint8_t>(most), static_cast<uint8_t>(most_vectors(p.target, rows)),
          kChunkBytes, kTasksPerThread};
}

}  // namespace tutti::codegen
