#include "tutti/train/step/train_step.h"

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/comm/progress.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/random_key.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/exchange_meter.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/train/run.h"
#include "tutti/train/step/step_memory.h"
#include "tutti/train/survival/planted_loss.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

LrSchedule make_schedule(const Config& config) {
  const LrSchedulerConfig& c = config.lr_scheduler;
  return LrSchedule({.warmup_steps = c.warmup_steps,
                     .total_steps = config.training.steps,
                     .decay_ratio = c.decay_ratio < 0 ? std::nullopt : std::optional(c.decay_ratio),
                     .decay = parse_lr_decay(c.decay_type),
                     .min_factor = c.min_lr_factor});
}

}  // namespace

TrainStep::TrainStep(Run& run) : run_(run), schedule_(make_schedule(run.config)) {
  const Config& config = run.config;
  const TensorRanks& tensor = run.tensor;
  const parallel::ExpertRanks ranks{.all = run.data_group,
                                    .experts = tensor.experts,
                                    .tensor = tensor.mesh == nullptr ? 1 : tensor.mesh->size(),
                                    .replicas = tensor.expert_replicas.get()};
  const std::vector<Tensor> leaves = nn::leaves_of(run.optimizer->parameters());
  shards_ = std::make_unique<parallel::Shards>(
      config.numerics.virtual_shards, run.data_group, leaves,
      parallel::parse_schedule(chosen_schedule(config.parallelism, !nn::moe_layers(run.model).empty())),
      parallel::parse_overlap(config.parallelism.data_parallel_overlap),
      parallel::expert_classes(leaves, config.numerics.virtual_shards, ranks));
  shards_->set_reduce_scatter_max_input_buffers(config.parallelism.reduce_scatter_max_input_buffers);
  if (config.runtime.progress_thread && run.ranks > 1) progress_thread_ = std::make_unique<comm::ProgressThread>();
  work_ = run.task->make_work(run, *shards_);
  if (config.training.compile && !run.survival->holds_state()) run.optimizer->compile();
}

TrainStep::~TrainStep() = default;

std::string TrainStep::advice() const { return shards_->advice(); }

// Forward and backward of this rank's virtual shards. Returns the number of losses that count in the step.
int64_t TrainStep::run_shards(int64_t first_row, double* data_ms) {
  const auto begin = Clock::now();
  const int64_t valid = shards_->sum(work_->read(first_row, shards_->local_shards()));
  if (run_.survival->is_lost_at("casting", run_.state.step + 1)) {
    const auto& parameters = run_.optimizer->parameters();
    for (size_t i = 0; i < parameters.size() / 2; ++i) parameters[i].parameter.use();
    lose_this_rank();
  }
  *data_ms = milliseconds(Clock::now() - begin);
  for (parallel::Shard& shard : shards_->step(run_.state.step + 1)) {
    const TraceSpan span(TraceCategory::annotation, "virtual shard");
    const Tensor losses = work_->run(shard.index(), 1.0 / static_cast<double>(valid));
    const ModuleScope module("gradients");
    shard.add(losses);
  }
  return valid;
}

StepRecord TrainStep::take(FunctionRef<void()> before_change) {
  const auto begin = Clock::now();
  TrainState& state = run_.state;
  run_.survival->note_beginning();
  StepRecord record{.step = state.step + 1};
  const TraceSpan span(TraceCategory::annotation,
                       TraceRecorder::is_on() ? intern_trace_name(fmt::format("step {}", record.step)) : "");
  const RankContext& rank = RankContext::current();
  RankContext::current().allocator().reset_peak();
  const ExchangeMeter exchanges;
  const int64_t flops_before = rank.product_flops, sent_before = rank.sent_bytes;
  run_.experts.begin_step();
  const int64_t valid = run_shards(state.next_row, &record.data_ms);

  const parallel::ShardSums sums = [&] {
    const TraceSpan reducing(TraceCategory::annotation, "reduce gradients");
    const PhaseScope phase(TracePhase::backward);
    const ModuleScope module("gradients");
    return shards_->finish();
  }();
  before_change();
  const auto loss = static_cast<float>(sums.loss / static_cast<double>(valid));
  record.comm_ms = milliseconds(exchanges.total());

  const PhaseScope phase(TracePhase::optimizer);
  const float norm = sums.norm;
  TUTTI_CHECK_ENV(
      std::isfinite(loss) && std::isfinite(norm),
      "step {}: the loss is {} and the gradient norm {}; the parameters were not changed. Lower optimizer.lr, "
      "or lengthen lr_scheduler.warmup_steps",
      record.step, loss, norm);
  record.experts = run_.experts.finish_step();
  const double lr_factor = schedule_.factor(record.step);
  record.lr = run_.config.optimizer.lr * lr_factor;
  record.loss = loss;
  record.grad_norm = norm;
  const int64_t rows = run_.rows();
  const StepFacts facts{.step = record.step,
                        .next_row = state.next_row + rows,
                        .items_seen = state.items_seen + rows * run_.task->items_per_row(),
                        .optimizer_steps = run_.optimizer->steps_taken() + 1,
                        .lr = record.lr,
                        .grad_scale = optim::clip_scale(norm, run_.config.training.max_norm),
                        .loss = loss,
                        .grad_norm = norm,
                        .step_ms = milliseconds(Clock::now() - begin),
                        .data_ms = record.data_ms,
                        .comm_ms = record.comm_ms,
                        .is_computed = 1};
  {
    const TraceSpan stepping(TraceCategory::annotation, "optimizer step");
    run_.survival->step(sums.gradients, facts, *run_.optimizer, run_.experts.record(record.experts));
    work_->finish(lr_factor);
  }
  record.comm_ms = milliseconds(exchanges.total());
  state.step = facts.step;
  state.next_row = facts.next_row;
  state.items_seen = facts.items_seen;
  state.position = run_.task->position();
  finish_record(record, milliseconds(Clock::now() - begin) / 1e3);
  const MemoryStatistics memory = memory_of_step(run_);
  if (memory.peak_bytes > run_.memory.peak_bytes) run_.memory = memory;
  record.memory_peak_bytes = memory.peak_bytes;
  record.product_flops = rank.product_flops - flops_before;
  record.sent_bytes = rank.sent_bytes - sent_before;
  return record;
}

// What follows from where the run stands.
void TrainStep::finish_record(StepRecord& record, double seconds) const {
  const double peak_gflops = run_.config.metrics.peak_gflops;
  record.model = kind_of(run_.config);
  record.items_seen = run_.state.items_seen;
  record.items_per_s = static_cast<double>(run_.rows() * run_.task->items_per_row()) / seconds;
  record.tflops = record.items_per_s * run_.task->training_flops_per_item() / 1e12;
  if (peak_gflops > 0) record.mfu = 100 * record.tflops * 1e3 / peak_gflops;
  record.step_ms = seconds * 1e3;
}

StepRecord TrainStep::record_of(const StepFacts& facts, std::vector<ExpertLoad> loads) const {
  StepRecord record{.step = facts.step,
                    .loss = static_cast<float>(facts.loss),
                    .grad_norm = facts.grad_norm,
                    .lr = facts.lr,
                    .data_ms = facts.data_ms,
                    .comm_ms = facts.comm_ms,
                    .experts = std::move(loads)};
  finish_record(record, facts.step_ms / 1e3);
  return record;
}

}  // namespace tutti::train
