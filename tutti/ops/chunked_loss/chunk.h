// One chunk of logits: its memory, the products that fill it and those that read it.
#pragma once

#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/chunked_loss/steps.h"
#include "tutti/ops/engine/tree_parts.h"

namespace tutti::chunked_loss {

// Rows (or elements) [part.begin, part.begin + part.count) of the first dim; absent optional inputs as they are.
Tensor rows_of(const Tensor& t, const TreePart& part);
// Columns of [R, V].
Tensor columns_of(const Tensor& t, const TreePart& part);
// The two columns [N, 1] of statistics [N, 2].
inline Tensor maximum_of(const Tensor& statistics) { return columns_of(statistics, {0, 1}); }
inline Tensor rest_of(const Tensor& statistics) { return columns_of(statistics, {1, 1}); }
codegen::GemmOperand operand(const Tensor& t);
codegen::GemmOperand transposed(const Tensor& t);

// gemm(), as an event of its own in traces.
void product(const char* name, int64_t m, int64_t n, int64_t k, const codegen::GemmOperand& a,
             const codegen::GemmOperand& b, const Tensor& c, const codegen::ContractionTree& tree);

// Copies the first two columns of statistics, maximum and rest, to `statistics` [B, 2].
void keep_statistics(std::span<const Tensor> columns, const Tensor& statistics);

// The sums over classes of the mix of each row of it, [M, 3]; undefined without mix.
Tensor split_mix(const OpCall& call);

class LogitChunk {
 public:
  // `call` outlives this. Room for `rows` x `classes`. mix_sums: of split_mix(), for to_gradient() of calls with mix.
  LogitChunk(const OpCall& call, int64_t rows, int64_t classes, const Tensor& mix_sums = {});

  // Fills the chunk with x w^T.
  const Tensor& compute(const TreePart& rows, const TreePart& classes);
  // columns: [B, 1] each, of these classes of the chunk, counted from its first. After compute().
  void statistics(std::span<const Tensor> columns, const TreePart& classes) const;
  void statistics(std::span<const Tensor> columns) const { statistics(columns, {0, classes_.count}); }
  // Puts the gradient of x w^T in the place of the chunk.
  void to_gradient() const;

 private:
  const OpCall& call_;
  const Tensor mix_sums_;
  Tensor room_, z_;
  TreePart rows_{}, classes_{};
};

}  // namespace tutti::chunked_loss
