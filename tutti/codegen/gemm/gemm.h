// C = A B in the summation order of a ContractionTree (numerics contract, N1, N3, N4, N5).
//
// Each element of C depends on its row of A, its column of B and the tree, and on nothing else: not on m, n, strides,
// tiling, threads or instruction set. Arithmetic is f32, or f64 when an operand is f64. A leaf of two bf16 operands is
// the chain of their pairs (N3), which reads and writes denormals as zero; other narrow operands are widened exactly.
// The result is rounded once when it is stored. NaN payloads are unspecified. In fast mode (runtime/numerics.h) a large
// product may be a library's, in an order of its own (fast_gemm.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/kernel.h"
#include "tutti/core/dtype.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {
class ThreadPool;
}

namespace tutti::codegen {

class GemmChooser;

// Element (i, j) is data[i * row_stride + j * column_stride], in elements of dtype (f64, f32, bf16, f16). Any
// strides: a transpose swaps them, 0 repeats. `data` of A is not used beside GemmOptions::producer.
struct GemmOperand {
  const void* data;
  DType dtype;
  int64_t row_stride, column_stride;
};

// Columns of C are neighbours. C must not overlap A or B. Without `data` its elements are in the blocks of
// GemmOptions::consumer and nowhere else.
struct GemmResult {
  void* data;
  DType dtype;
  int64_t row_stride;
};

// Problem number x has its operands x strides further, in elements.
struct GemmBatch {
  int64_t count = 1;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

// A part of C whose elements are final, while it is near: in C, or in memory that the next block reuses. Rows count
// through the batch: row i of problem x is x * m + i.
struct GemmBlock {
  int64_t first_row, rows, first_column, columns;
  void* data;  // columns are neighbours
  int64_t row_stride;
};
using GemmConsumer = FunctionRef<void(const GemmBlock&)>;

// A requested part of A: rows are numbered as in a GemmBlock, elements have A's dtype. One of the strides is 1: the row
// stride if it is 1 in A, otherwise the column stride.
struct GemmOperandBlock {
  int64_t first_row, rows, first_k, length;
  void* data;
  int64_t row_stride, column_stride;
};
using GemmProducer = FunctionRef<void(const GemmOperandBlock&)>;

struct GemmOptions {
  CpuTarget target = cpu_target();
  ThreadPool* pool = nullptr;  // null: ThreadPool::current()
  GemmChooser* chooser =
      nullptr;  // chooses tiles, packing and tasks; never affects bits; null: as TUTTI_GEMM_CHOICE says
  // Called with the parts of A as they are packed, from the threads that pack them. Together with a consumer it is
  // called for rows of A after others of C were handed on. It must not call gemm().
  const GemmProducer* producer = nullptr;
  // Called with every element of C once, from the threads that computed them; it may overwrite them. It must not call
  // gemm().
  const GemmConsumer* consumer = nullptr;
};

// c[m, n] = a[m, k] b[k, n]. The tree must have k elements; k = 0 stores -0.0, the identity of a sum, so that a rank
// without rows contributes nothing. UsageError: negative sizes, other dtypes, a tree of another k, neither C nor
// consumer.
void gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
          const ContractionTree& tree, const GemmOptions& options = {});

// One of several products that are summed.
struct GemmSource {
  GemmOperand a, b;
  int64_t k;
};

// c[m, n] = the sum of a[m, k] b[k, n] over the sources, which is one contraction (InterleavedContraction::halving).
// The sources may have different dtypes: only where both operands of all of them are bf16 are leaves chains of pairs. A
// producer makes A of the first. UsageError: negative sizes, no source, other dtypes, neither C nor a consumer.
void interleaved_gemm(int64_t m, int64_t n, std::span<const GemmSource> sources, const GemmResult& c,
                      const GemmOptions& options = {});

// How interleaved_gemm() would run the problem. For traces.
std::string describe_interleaved_gemm(int64_t m, int64_t n, std::span<const GemmSource> sources, const GemmResult& c,
                                      const GemmOptions& options = {});

// Stores -0.0, the identity of a sum, `count` times. Dtypes: those of gemm().
void store_sum_identity(void* to, DType dtype, int64_t count);

// How gemm() would run the problem: instruction set, tile, what is copied. For traces.
std::string describe_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                          const GemmResult& c, const ContractionTree& tree, const GemmOptions& options = {});

// gemm() for `batch.count` problems of one shape.
void batched_gemm(const GemmBatch& batch, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                  const GemmResult& c, const ContractionTree& tree, const GemmOptions& options = {});

}  // namespace tutti::codegen
