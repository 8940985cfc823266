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

void product(const char* name, int64_t m, int64_t n, int64_t k, const codegen::GemmOperand& a,
             const codegen::GemmOperand& b, const Tensor& c, const codegen::ContractionTree& tree) {
  const TraceSpan span(TraceCategory::annotation, name);
  codegen::gemm(m, n, k, a, b, {c.raw_data(), c.dtype(), c.strides()[0]}, tree);
}

void keep_statistics(std::span<const Tensor> columns, const Tensor& statistics) {
  run_step(kConvert, {columns[kColumnMaximum]}, maximum_of(statistics));
  run_step(kConvert, {columns[kColumnRest]}, rest_of(statistics));
}

Tensor split_mix(const OpCall& call) {
  if (!has_mix(call)) return {};
  const Tensor sums = Tensor::empty({call[kMix].extents()[0], 3}, computes_in(call));
  std::vector<Tensor> columns;
  for (const int64_t k : {0, 1, 2}) columns.push_back(columns_of(sums, {k, 1}));
  run_step(kSplitMix, {}, {&call[kMix], 1}, columns);
  return sums;
}

LogitChunk::LogitChunk(const OpCall& call, int64_t rows, int64_t classes, const Tensor& mix_sums)
    : call_(call), mix_sums_(mix_sums), room_(Tensor::empty({rows * classes}, logits_of(call))) {}

const Tensor& LogitChunk::compute(const TreePart& rows, const TreePart& classes) {
  rows_ = rows;
  classes_ = classes;
  z_ = room_.view_as({rows.count, classes.count}, {classes.count, 1}, 0);
  const int64_t F = features_of(call_);
  product("logits", rows.count, classes.count, F, operand(rows_of(call_[kX], rows)),
          transposed(rows_of(call_[kWeight], classes)), z_, codegen::ContractionTree::halving(F));
  return z_;
}

namespace {

Tensor bias_of(const OpCall& call, const TreePart& classes) {
  const Tensor& bias = call[kBias];
  return bias.view_as({1, classes.count}, {0, bias.strides()[0]}, bias.offset() + classes.begin * bias.strides()[0]);
}
// The rows of mix, or of what is made of it, for these rows of the loss.
Tensor mix_rows_of(const Tensor& mix, const TreePart& rows) { return mix.extents()[0] == 1 ? mix : rows_of(mix, rows); }

}  // namespace

void LogitChunk::statistics(std::span<const Tensor> columns, const TreePart& classes) const {
  const TreePart of_call{classes_.begin + classes.begin, classes.count};
  std::vector<Tensor> inputs{columns_of(z_, classes), rows_of(call_[kLabels], rows_)};
  if (has_bias(call_)) inputs.push_back(bias_of(call_, of_call));
  if (has_mix(call_)) inputs.push_back(mix_rows_of(columns_of(call_[kMix], of_call), rows_));
  run_step(kChunkStatistics, step_attrs(call_, of_call.begin), inputs, columns);
}

void LogitChunk::to_gradient() const {
  const Tensor statistics = rows_of(call_[kStatistics], rows_);
  std::vector<Tensor> inputs{z_, rows_of(call_[kLabels], rows_), maximum_of(statistics), rest_of(statistics),
                             rows_of(call_[kGradLoss], rows_)};
  StepAttrs attrs = step_attrs(call_, classes_.begin);
  attrs.mass = call_[kGradMass].numel() > 0;
  if (has_bias(call_)) inputs.push_back(bias_of(call_, classes_));
  if (has_mix(call_)) {
    const Tensor sums = mix_rows_of(mix_sums_, rows_);
    inputs.insert(inputs.end(),
                  {mix_rows_of(columns_of(call_[kMix], classes_), rows_), rows_of(call_[kGradMix], rows_)});
    for (const int64_t k : {0, 1, 2}) inputs.push_back(columns_of(sums, {k, 1}));
  }
  if (attrs.mass) inputs.push_back(rows_of(call_[kGradMass], rows_));
  run_step(kChunkGradient, attrs, inputs, {&z_, 1});
}

}  // namespace tutti::chunked_loss
