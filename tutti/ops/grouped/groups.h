// The groups of a grouped product: their ranges, operands and order of summation. For grouped_mm.cpp, and for products
// whose rows are not in one tensor.
#pragma once

#include <vector>

#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/engine/op_def.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::grouped {

// Operands of a call: a, b, offsets and, when position_count is not 0, positions.
struct GroupedAttrs {
  SymInt position_count;
  DType out_dtype;
  static constexpr auto fields() {
    return field_list(field::size<&GroupedAttrs::position_count>("position_count"),
                      field::output_dtype<&GroupedAttrs::out_dtype>("out_dtype"));
  }
};
bool has_positions(const OpCall& call);

// The role of the ragged dim in a product of one group: its rows, its columns, or the dim that is summed.
enum class Form { rows, columns, contraction };
Form form_of(int a_ndim, int b_ndim);
Form form_of(const OpCall& call);

// A range of the ragged dim.
struct Group {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// UsageError naming the first group that does not fit.
std::vector<Group> groups_of(const OpCall& call);
// The groups of a call of any op with the operands a, b and offsets, whose ragged dim has so many elements.
std::vector<Group> groups_of(const OpCall& call, int64_t ragged);
// UsageError as groups_of(), and naming the first element whose position is out of order or range.
void check_groups(const OpCall& call);

// The product of group number `g`.
struct Product {
  int64_t m, n, k;
  codegen::GemmOperand a, b;
  codegen::GemmResult c;
};
Product product_of(const OpCall& call, const Tensor& out, int64_t g, const Group& group);

// The order of the sum in each group's product.
class Trees {
 public:
  explicit Trees(const OpCall& call);
  codegen::ContractionTree of(const Group& group) const;

 private:
  bool ragged_;
  codegen::ContractionTree dense_;  // of what is not ragged
  std::vector<int64_t> positions_;
  int64_t position_count_ = 0;  // 0: no positions
};

// Writes a block of the operand a of the group that begins at `begin` in the ragged dim; on any thread.
using RowProducer = FunctionRef<void(int64_t begin, const codegen::GemmOperandBlock& block)>;
// All products of a call with the inputs a, b, offsets and, if position_count is not 0, positions. With a producer only
// sizes and strides of a are read.
void multiply_groups(std::span<const Tensor> inputs, int64_t position_count, const Tensor& out,
                     const RowProducer* producer = nullptr);

}  // namespace tutti::grouped
