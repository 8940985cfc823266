#include "tutti/ops/chunked_loss/chunk.h"

#include "tutti/runtime/trace/trace_span.h"

namespace tutti::chunked_loss {

Tensor rows_of(const Tensor& t, const TreePart& part) {
  Extents sizes = t.extents();
  sizes[0] = part.count;
  return t.view_as(sizes, t.strides(), t.offset() + part.begin * t.strides()[0]);
}

Tensor columns_of(const Tensor& t, const TreePart& part) {
  Extents sizes = t.extents();
  sizes[1] = part.count;
  return t.view_as(sizes, t.strides(), t.offset() + part.begin * t.strides()[1]);
}

codegen::GemmOperand operand(const Tensor& t) { return {t.raw_data(), t.dtype(), t.strides()[0], t.strides()[1]}; }
codegen::GemmOperand transposed(const Tensor& t) { return {t.raw_data(), t.dtype(), t.strides()[1], t.strides()[0]}; }

void product(const char* name, int64_t m, int64_t n, int64_t k, const codegen::GemmOperand& a, const codegen::GemmOperand& b, const Tensor& c,
             const codegen::ContractionTree& tree) {
  const TraceSpan span(TraceCategory::annotation, name);
  codegen::gemm(m, n, k, a, b, {c.raw_data(), c.dtype(), c.strides()[0]}, tree);
}

void keep_statistics(std::span<const Tensor> columns, const Tensor& statistics) {
  run_step(kConvert, {columns[kColumnMaximum]}, maximum_of(statistics));
  run_step(kConvert, {columns[kColumnRest]}, rest_of(statistics));
}

LogitChunk::LogitChunk(const OpCall& call, int64_t rows, int64_t classes)
    : call_(call), room_(Tensor::empty({rows * classes}, logits_of(call))) {}

const Tensor& LogitChunk::compute(const TreePart& rows, const TreePart& classes) {
  rows_ = rows;
  classes_ = classes;
  z_ = room_.view_as({rows.count, classes.count}, {classes.count, 1}, 0);
  const int64_t F = features_of(call_);
  product("logits", rows.count, classes.count, F, operand(rows_of(call_[kX], rows)), transposed(rows_of(call_[kWeight], classes)), z_,
          codegen::ContractionTree::halving(F));
  return z_;
}

namespace {

Tensor bias_of(const OpCall& call, const TreePart& classes) {
  const Tensor& bias = call[kBias];
  return bias.view_as({1, classes.count}, {0, bias.strides()[0]}, bias.offset() + classes.begin * bias.strides()[0]);
}
Tensor mix_of(const OpCall& call, const TreePart& rows, const TreePart& classes) {
  const Tensor mix = columns_of(call[kMix], classes);
  return mix.extents()[0] == 1 ? mix : rows_of(mix, rows);
}

}  // namespace

void LogitChunk::origin(const Tensor& result) const {
  const TreePart first{classes_.begin, 1};
  std::vector<Tensor> inputs{columns_of(z_, {0, 1})};
  if (has_bias(call_)) inputs.push_back(bias_of(call_, first));
  run_step(kOrigin, step_attrs(call_, first.begin), inputs, {&result, 1});
}

void LogitChunk::statistics(std::span<const Tensor> columns, const Tensor& origin) const {
  std::vector<Tensor> inputs{z_, rows_of(call_[kLabels], rows_)};
  if (has_bias(call_)) inputs.push_back(bias_of(call_, classes_));
  if (has_mix(call_)) inputs.insert(inputs.end(), {mix_of(call_, rows_, classes_), origin});
  run_step(kChunkStatistics, step_attrs(call_, classes_.begin), inputs, columns);
}

void LogitChunk::to_gradient() const {
  const Tensor statistics = rows_of(call_[kStatistics], rows_);
  std::vector<Tensor> inputs{z_, rows_of(call_[kLabels], rows_), maximum_of(statistics), rest_of(statistics), rows_of(call_[kGradLoss], rows_)};
  StepAttrs attrs = step_attrs(call_, classes_.begin);
  attrs.mass = call_[kGradMass].numel() > 0;
  if (has_bias(call_)) inputs.push_back(bias_of(call_, classes_));
  if (has_mix(call_)) inputs.insert(inputs.end(), {mix_of(call_, rows_, classes_), rows_of(call_[kGradMix], rows_)});
  if (attrs.mass) inputs.push_back(rows_of(call_[kGradMass], rows_));
  run_step(kChunkGradient, attrs, inputs, {&z_, 1});
}

}  // namespace tutti::chunked_loss
