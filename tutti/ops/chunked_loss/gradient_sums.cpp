#include "tutti/ops/chunked_loss/gradient_sums.h"

#include "tutti/ops/sum_to.h"

namespace tutti::chunked_loss {

using codegen::ContractionTree;

PendingSums::PendingSums(const Tensor& result, int64_t rows, const std::vector<TreePart>& parts, DType dtype)
    : straight_(parts.size() == 1) {
  const int slots = slots_of(parts), in_result = result.dtype() == dtype;
  if (straight_ || slots <= in_result) return;
  Extents sizes = result.extents();
  sizes[0] = rows * (slots - in_result);
  room_ = Tensor::empty(sizes, dtype);
  first_ = in_result;
  rows_ = rows;
}

Tensor PendingSums::slot(const Tensor& result, int64_t begin, int pending) const {
  if (straight_ || pending < first_) return result;
  return rows_of(room_, {(pending - first_) * rows_ + begin, result.extents()[0]});
}

void PendingSums::join(const Tensor& result, int64_t begin, const TreePart& part, bool is_last) const {
  for (int k = part.pending; k > part.pending - part.merges; --k) {
    const Tensor left = slot(result, begin, k - 1);
    run_step(kAddParts, {left, slot(result, begin, k)}, left);
  }
  if (is_last && !straight_ && first_ == 0) run_step(kConvert, {slot(result, begin, 0)}, result);
}

InputGradient::InputGradient(const OpCall& call, const Tensor& result, int64_t rows,
                             const std::vector<TreePart>& classes)
    : call_(call),
      result_(result),
      classes_(classes.back().begin + classes.back().count),
      sums_(result, rows, classes, computes_in(call)) {}

void InputGradient::add(const Tensor& d, const TreePart& rows, const TreePart& classes, int64_t begin) const {
  const Tensor result = rows_of(result_, rows), to = sums_.slot(result, begin, classes.pending);
  product("input gradient", rows.count, features_of(call_), classes.count, operand(d),
          operand(rows_of(call_[kWeight], classes)), to, ContractionTree::halving(classes.count));
  sums_.join(result, begin, classes, classes.begin + classes.count == classes_);
}

ParameterGradients::ParameterGradients(const OpCall& call, const Tensor& weight, const Tensor& bias, int64_t classes,
                                       const std::vector<TreePart>& rows)
    : call_(call), weight_(weight), bias_(bias) {
  if (needs(call, kNeedWeight)) weight_sums_.emplace(weight, classes, rows, computes_in(call));
  if (needs(call, kNeedBias)) bias_sums_.emplace(bias, classes, rows, computes_in(call));
}

// Results have the dtype of sums: nothing is left to convert after the last part.
void ParameterGradients::add(const Tensor& d, const TreePart& rows, const TreePart& classes) const {
  if (weight_sums_) {
    const Tensor result = rows_of(weight_, classes), to = weight_sums_->slot(result, 0, rows.pending);
    product("weight gradient", classes.count, features_of(call_), rows.count, transposed(d),
            operand(rows_of(call_[kX], rows)), to,
            ContractionTree::halving(rows.count, static_cast<int32_t>(token_grain())));
    weight_sums_->join(result, 0, rows, false);
  }
  if (bias_sums_) {
    const Tensor result = rows_of(bias_, classes);
    run_step(kSumRows, {d}, bias_sums_->slot(result, 0, rows.pending));
    bias_sums_->join(result, 0, rows, false);
  }
}

}  // namespace tutti::chunked_loss
