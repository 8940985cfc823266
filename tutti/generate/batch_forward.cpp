#include "tutti/generate/batch_forward.h"

#include "tutti/dist/dtensor.h"
#include "tutti/graph/compile.h"
#include "tutti/models/decoder_config.h"
#include "tutti/ops/gather.h"

template <>
struct tutti::graph::Fields<tutti::generate::PagedBatch::Call> {
  static void visit(auto& call, auto& visit) { visit(call.table), visit(call.last_key); }
};
template <>
struct tutti::graph::Fields<tutti::generate::PagedBatch::Group> {
  static void visit(auto& group, auto& visit) { visit(group.slots), visit(group.calls); }
};
template <>
struct tutti::graph::Fields<tutti::generate::PagedBatch> {
  static void visit(auto& batch, auto& visit) { visit(batch.groups); }
};
template <>
struct tutti::graph::Fields<tutti::generate::BatchInputs> {
  static void visit(auto& in, auto& visit) {
    visit(in.tokens), visit(in.positions), visit(in.first_keys), visit(in.rows), visit(in.labelled), visit(in.labels);
    visit(in.cached);
  }
};

namespace tutti::generate {
namespace {

constexpr int64_t kLossBytes = int64_t{64} << 20;  // of logits at once, for log-probabilities of prompts

Tensor from_mesh(const Tensor& t) { return dist::is_dtensor(t) ? dist::full_tensor(t) : t; }

}  // namespace

BatchForward::BatchForward(const models::LanguageModel& model, PagedCache& cache, const models::ForwardOptions& options,
                           bool compiled)
    : model_(model), cache_(cache), options_(options) {
  if (!compiled) return;
  const auto function = compile(
      [this](const BatchInputs& inputs) {
        const Tensor x_TD = hidden(inputs);
        return inputs.rows.defined() ? logits(x_TD, inputs.rows) : x_TD;
      },
      {.name = "decode", .on_limit = CompileOptions::OnLimit::eager});
  compiled_ = function;
  statistics_ = [function] { return function.statistics(); };
}

BatchOutputs BatchForward::operator()(const BatchInputs& inputs) {
  const bool is_one_call = inputs.cached.groups.front().calls.size() == 1;
  if (compiled_ && has_memory_ && is_one_call && !inputs.labels.defined()) return {.logits = compiled_(inputs)};
  BatchOutputs outputs;
  const Tensor x_TD = hidden(inputs);
  has_memory_ = true;
  if (inputs.labels.defined())
    outputs.losses = from_mesh(
        model_.head_losses(index_select(x_TD, 0, inputs.labelled), inputs.labels, {.loss_max_bytes = kLossBytes}));
  if (inputs.rows.defined()) outputs.logits = logits(x_TD, inputs.rows);
  return outputs;
}

Tensor BatchForward::hidden(const BatchInputs& inputs) const {
  PagedAttention attention(cache_, inputs.cached);
  const models::TokenBatch batch{.tokens = inputs.tokens,
                                 .positions = inputs.positions,
                                 .first_key = inputs.first_keys,
                                 .rows = 1,
                                 .cache = &attention};
  return model_.blocks(model_.embed(batch), batch, 0, std::ssize(model_.config().layers), options_);
}

Tensor BatchForward::logits(const Tensor& x_TD, const Tensor& rows) const {
  return from_mesh(model_.head_logits(index_select(x_TD, 0, rows)));
}

}  // namespace tutti::generate
