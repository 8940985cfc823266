#include "tutti/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "tutti/comm/progress.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/sum_to.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/parameter_copies.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/exchange_meter.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/train/agreement.h"
#include "tutti/train/checkpoint/background_saver.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/data/batch.h"
#include "tutti/train/report/byte_text.h"
#include "tutti/train/report/machine.h"
#include "tutti/train/report/memory_report.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run_start.h"
#include "tutti/train/sample.h"
#include "tutti/train/signals.h"
#include "tutti/train/step/evaluate.h"
#include "tutti/train/step/expert_balance.h"
#include "tutti/train/step/lr_schedule.h"
#include "tutti/train/step/plan_layouts.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/shard_model.h"
#include "tutti/train/step/shard_step.h"
#include "tutti/train/step/step_plan.h"
#include "tutti/train/step/step_profiler.h"
#include "tutti/train/step/step_timeline_recorder.h"
#include "tutti/train/step/tensor_ranks.h"
#include "tutti/train/survival/lasting_run.h"
#include "tutti/train/survival/planted_loss.h"
#include "tutti/train/survival/survivors.h"

namespace tutti::train {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerConfig& c, std::vector<nn::NamedParameter> parameters,
                                                 optim::StateMemory memory) {
  if (c.name == "sgd")
    return optim::make_sgd(std::move(parameters),
                           optim::SgdOptions{.momentum = c.momentum, .weight_decay = c.weight_decay},
                           std::move(memory));
  return optim::make_adamw(
      std::move(parameters),
      optim::AdamWOptions{.beta1 = c.beta1, .beta2 = c.beta2, .eps = c.eps, .weight_decay = c.weight_decay},
      std::move(memory));
}

// The state of the run in memory that outlives a rank; null where no rank is survived.
std::unique_ptr<LastingRun> make_lasting(const Config& config, const TrainerOptions& options, const nn::Module& model,
                                         const ExpertBalance& experts) {
  return options.survivors == nullptr ? nullptr
                                      : std::make_unique<LastingRun>(*options.survivors, *options.group, config, model,
                                                                     experts.record({}).size());
}

LrSchedule make_schedule(const Config& config) {
  const LrSchedulerConfig& c = config.lr_scheduler;
  return LrSchedule({.warmup_steps = c.warmup_steps,
                     .total_steps = config.training.steps,
                     .decay_ratio = c.decay_ratio < 0 ? std::nullopt : std::optional(c.decay_ratio),
                     .decay = parse_lr_decay(c.decay_type),
                     .min_factor = c.min_lr_factor});
}

class Trainer {
 public:
  Trainer(const Config& config, const TrainerOptions& options, RunStart start, RunData data)
      : config_(config),
        group_(options.group),
        rank_(group_ ? group_->rank() : 0),
        ranks_(group_ ? group_->size() : 1),
        numerics_(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict),
        grain_(config.numerics.token_grain),
        start_(std::move(start)),
        tokenizer_(std::move(data.tokenizer)),
        data_(std::move(data.corpus), *tokenizer_,
              {.sequence_length = config.data.sequence_length,
               .validation_fraction = config.data.validation_fraction,
               .seed = static_cast<uint64_t>(config.training.seed)}),
        model_(build_model(config)),
        tensor_(divide_model(*model_, config.parallelism, group_)),
        data_group_(tensor_.mesh != nullptr ? tensor_.data.get() : group_),
        experts_(*model_, config.model.load_balance_coeff, group_),
        lasting_(make_lasting(config, options, *model_, experts_)),
        sharded_(
            shard_model(*model_, config.parallelism, group_, tensor_, lasting_ ? lasting_->master_memory() : nullptr)),
        schedule_(make_schedule(config)),
        forward_(forward_options(config)) {
    TUTTI_CHECK(tokenizer_->vocab_size() <= model_->vocab_size(),
                "model.flavor '{}' has a vocabulary of {}, the tokenizer '{}' needs {}; use a smaller tokenizer",
                config.model.flavor, model_->vocab_size(), tokenizer_->name(), tokenizer_->vocab_size());
    const int64_t rows = config.training.global_batch_tokens / config.data.sequence_length;
    rows_per_shard_ = rows / config.numerics.virtual_shards;
    state_.seed = static_cast<uint64_t>(config.training.seed);
    seed_all(state_.seed);
    if (lasting_ && !sharded_) lasting_->share_masters(*model_);
    optimizer_ =
        make_optimizer(config.optimizer, model_->named_parameters(), lasting_ ? lasting_->state_memory() : nullptr);
    if (!goes_on()) nn::initialize(*model_);
    const parallel::ExpertRanks ranks{.all = data_group_,
                                      .experts = tensor_.experts,
                                      .tensor = tensor_.mesh == nullptr ? 1 : tensor_.mesh->size(),
                                      .replicas = tensor_.expert_replicas.get()};
    const std::vector<Tensor> leaves = nn::leaves_of(optimizer_->parameters());
    shards_.emplace(config.numerics.virtual_shards, data_group_, leaves,
                    parallel::parse_schedule(config.parallelism.data_parallel_schedule),
                    parallel::parse_overlap(config.parallelism.data_parallel_overlap),
                    parallel::expert_classes(leaves, config.numerics.virtual_shards, ranks));
    shards_->set_reduce_scatter_max_input_buffers(config.parallelism.reduce_scatter_max_input_buffers);
    if (config.runtime.progress_thread && group_ != nullptr && group_->size() > 1) progress_thread_.emplace();
    shard_step_.emplace(
        *model_, *shards_->sink(), forward_, config.training.compile,
        config.activation_checkpoint.mode == "memory_budget" ? config.activation_checkpoint.memory_budget : 1.0,
        tensor_.mesh, config.parallelism.enable_async_tensor_parallel);
    if (config.training.compile && !lasting_) optimizer_->compile();
    if (config.checkpoint.async) saver_.emplace(group_, *model_, *optimizer_);
    inputs_ = std::move(data.inputs);
  }

  TrainerResult run(const TrainerOptions& options);

 private:
  // Whether the values of the run are there already, left by ranks of which one was lost.
  bool goes_on() const { return lasting_ && lasting_->is_begun(); }
  StepRecord train_step();
  void finish_record(StepRecord& record, double seconds);
  StepRecord record_of(const StepFacts& facts);
  int64_t run_shards(int64_t first_row, double* data_ms);
  void load();
  int64_t missing_checkpoint() const;
  void save(const std::filesystem::path& folder, RunLog* log);
  static void note_saved(RunLog* log, const std::filesystem::path& step_folder);
  double validate();
  std::string beginning();
  std::vector<RankMemoryBars> memory_of_ranks(bool is_shared) const;

  Config config_;
  comm::ProcessGroup* group_;
  int rank_, ranks_;
  NumericsScope numerics_;
  TokenGrainScope grain_;
  RunStart start_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenDataset data_;
  std::unique_ptr<models::LanguageModel> model_;
  const TensorRanks tensor_;              // where the model is divided over ranks
  comm::ProcessGroup* const data_group_;  // the ranks that share the batch
  ExpertBalance experts_;
  const std::unique_ptr<LastingRun> lasting_;       // where the run outlives a rank
  std::optional<parallel::ShardedModule> sharded_;  // where parameters are divided over ranks
  std::unique_ptr<optim::Optimizer> optimizer_;
  LrSchedule schedule_;
  models::ForwardOptions forward_;
  std::optional<comm::ProgressThread> progress_thread_;
  std::optional<parallel::Shards> shards_;
  std::optional<ShardStep> shard_step_;
  std::optional<BackgroundSaver> saver_;  // with checkpoint.async
  std::optional<StepFacts> unfinished_;   // a step of an earlier team that is committed, but neither logged nor saved
  std::vector<ExpertLoad> unfinished_loads_;  // of it
  std::vector<LostRank> lost_;                // since the last step that is logged
  size_t told_losses_ = 0;                    // of the run, with those of lost_
  int64_t rows_per_shard_ = 0;
  TrainState state_;
  RunInputs inputs_;         // of this start
  MemoryStatistics memory_;  // of the step with the highest peak
};

// Forward and backward of this rank's virtual shards. Returns the number of labels that count in the step.
int64_t Trainer::run_shards(int64_t first_row, double* data_ms) {
  const auto begin = Clock::now();
  std::vector<TokenRows> shards;
  int64_t valid = 0;
  for (const int64_t s : shards_->local_shards()) {
    shards.push_back(data_.training_rows(first_row + s * rows_per_shard_, rows_per_shard_));
    valid += count_valid(shards.back());
  }
  valid = shards_->sum(valid);
  if (lasting_ && is_lost_at("casting", state_.step + 1)) {
    for (size_t i = 0; i < optimizer_->parameters().size() / 2; ++i) optimizer_->parameters()[i].parameter.use();
    lose_this_rank();
  }
  *data_ms = milliseconds(Clock::now() - begin);
  const TokenRows* rows = shards.data();
  for (parallel::Shard& shard : shards_->step(state_.step + 1)) {
    const TraceSpan span(TraceCategory::annotation, "virtual shard");
    const Tensor labels = labels_of(*rows);
    const Tensor losses =
        shard_step_->run(to_batch(*rows++), labels, full(labels.sizes(), 1.0 / static_cast<double>(valid)));
    const ModuleScope module("gradients");
    shard.add(losses);
  }
  return valid;
}

StepRecord Trainer::train_step() {
  const auto begin = Clock::now();
  if (lasting_) lasting_->note_beginning();
  StepRecord record{.step = state_.step + 1};
  const TraceSpan span(TraceCategory::annotation,
                       TraceRecorder::is_on() ? intern_trace_name(fmt::format("step {}", record.step)) : "");
  const RankContext& rank = RankContext::current();
  RankContext::current().allocator().reset_peak();
  const ExchangeMeter exchanges;
  const int64_t flops_before = rank.product_flops, sent_before = rank.sent_bytes;
  experts_.begin_step();
  const int64_t valid = run_shards(state_.next_row, &record.data_ms);

  const parallel::ShardSums sums = [&] {
    const TraceSpan reducing(TraceCategory::annotation, "reduce gradients");
    const PhaseScope phase(TracePhase::backward);
    const ModuleScope module("gradients");
    return shards_->finish();
  }();
  if (saver_) saver_->before_change();
  const auto loss = static_cast<float>(sums.loss / static_cast<double>(valid));
  record.comm_ms = milliseconds(exchanges.total());

  const PhaseScope phase(TracePhase::optimizer);
  const float norm = sums.norm;
  TUTTI_CHECK_ENV(
      std::isfinite(loss) && std::isfinite(norm),
      "step {}: the loss is {} and the gradient norm {}; the parameters were not changed. Lower optimizer.lr, "
      "or lengthen lr_scheduler.warmup_steps",
      record.step, loss, norm);
  record.experts = experts_.finish_step();
  record.lr = config_.optimizer.lr * schedule_.factor(record.step);
  record.loss = loss;
  record.grad_norm = norm;
  const double grad_scale = optim::clip_scale(norm, config_.training.max_norm);
  const int64_t rows = config_.numerics.virtual_shards * rows_per_shard_, tokens = rows * config_.data.sequence_length;
  if (lasting_) {
    const StepFacts facts{.step = record.step,
                          .next_row = state_.next_row + rows,
                          .tokens_seen = state_.tokens_seen + tokens,
                          .optimizer_steps = optimizer_->steps_taken() + 1,
                          .lr = record.lr,
                          .grad_scale = grad_scale,
                          .loss = loss,
                          .grad_norm = norm,
                          .step_ms = milliseconds(Clock::now() - begin),
                          .data_ms = record.data_ms,
                          .comm_ms = record.comm_ms,
                          .is_computed = 1};
    const TraceSpan stepping(TraceCategory::annotation, "optimizer step");
    lasting_->step(sums.gradients, facts, *optimizer_, experts_.record(record.experts));
  } else {
    const TraceSpan stepping(TraceCategory::annotation, "optimizer step");
    optimizer_->step(sums.gradients, record.lr, grad_scale);
    record.comm_ms = milliseconds(exchanges.total());
  }
  state_.step += 1;
  state_.next_row += rows;
  state_.tokens_seen += tokens;
  finish_record(record, milliseconds(Clock::now() - begin) / 1e3);
  MemoryStatistics memory = RankContext::current().allocator().statistics();
  const bool reads_masters = lasting_ && config_.training.mixed_precision_param == "float32";
  if (sharded_ && sharded_->is_shared() && !reads_masters) {  // pages that the ranks of the host give in equal parts
    const int64_t pages = sharded_->all_given_bytes();
    memory.peak_bytes += pages;
    memory.at_peak_by_category[static_cast<size_t>(MemoryCategory::parameters)] += pages;
  }
  const int64_t received = parallel::dispatch_counts().memory_bytes;  // in pages that ranks share
  memory.peak_bytes += received;
  memory.at_peak_by_category[static_cast<size_t>(MemoryCategory::activations)] += received;
  if (lasting_) lasting_->add_memory(memory);
  if (memory.peak_bytes > memory_.peak_bytes) memory_ = memory;
  record.memory_peak_bytes = memory.peak_bytes;
  record.product_flops = rank.product_flops - flops_before;
  record.sent_bytes = rank.sent_bytes - sent_before;
  return record;
}

// What follows from where the run stands.
void Trainer::finish_record(StepRecord& record, double seconds) {
  const int64_t tokens = config_.numerics.virtual_shards * rows_per_shard_ * config_.data.sequence_length;
  record.tokens_seen = state_.tokens_seen;
  record.tokens_per_s = static_cast<double>(tokens) / seconds;
  record.tflops = record.tokens_per_s * model_->training_flops_per_token(config_.data.sequence_length) / 1e12;
  if (config_.metrics.peak_gflops > 0) record.mfu = 100 * record.tflops * 1e3 / config_.metrics.peak_gflops;
  record.step_ms = seconds * 1e3;
}

// The step was committed, but a rank was lost before its log was written.
StepRecord Trainer::record_of(const StepFacts& facts) {
  StepRecord record{.step = facts.step,
                    .loss = static_cast<float>(facts.loss),
                    .grad_norm = facts.grad_norm,
                    .lr = facts.lr,
                    .data_ms = facts.data_ms,
                    .comm_ms = facts.comm_ms,
                    .experts = unfinished_loads_};
  finish_record(record, facts.step_ms / 1e3);
  return record;
}

double Trainer::validate() {
  const int64_t rows = config_.validation.steps < 0
                           ? data_.validation_row_count()
                           : config_.validation.steps * config_.numerics.virtual_shards * rows_per_shard_;
  std::optional<parallel::UnshardedScope> whole;  // ranks read unequally often
  if (sharded_) whole.emplace(*sharded_);
  return bits_per_byte(*model_, data_, *tokenizer_, rows, forward_, tensor_.evaluators(group_), tensor_.mesh);
}

void Trainer::save(const std::filesystem::path& folder, RunLog* log) {
  state_.optimizer_steps = optimizer_->steps_taken();
  if (lasting_) may_be_lost_at("saving", state_.step);
  if (lasting_) lasting_->note_save(state_.step);
  if (saver_) {
    note_saved(log, saver_->wait());
    saver_->save(folder, *model_, *optimizer_, state_, config_.checkpoint.keep_latest);
  } else {
    save_checkpoint(folder, *model_, *optimizer_, state_, config_.checkpoint.keep_latest, group_);
    note_saved(log, folder / fmt::format("step-{}", state_.step));
  }
}

// The step of the last checkpoint that was begun, if it was being written in the background when a rank was lost, and
// is not there; 0: none. The same on all ranks.
int64_t Trainer::missing_checkpoint() const {
  if (!saver_ || !goes_on()) return 0;
  const int64_t due = lasting_->begun_save();
  const auto newest = newest_checkpoint(start_.path / "checkpoint");
  const bool is_there = due == 0 || (newest && *step_of(*newest) >= due);
  return value_of_first_rank(group_, is_there ? 0 : due);
}

// Says that a checkpoint is whole; an empty path says nothing.
void Trainer::note_saved(RunLog* log, const std::filesystem::path& step_folder) {
  if (log != nullptr && !step_folder.empty()) log->note(fmt::format("saved {}", step_folder.string()));
}

void Trainer::load() {
  if (goes_on()) {
    const StepFacts facts = lasting_->recover(*optimizer_);
    state_.step = facts.step;
    state_.tokens_seen = facts.tokens_seen;
    state_.next_row = facts.next_row;
    lost_ = lasting_->untold();
    told_losses_ = lasting_->told() + lost_.size();
    // The end of the run tells what was lost with the last step.
    const bool is_last = facts.step >= config_.training.steps && !lost_.empty();
    unfinished_loads_ = experts_.restore(lasting_->recovered_extra());
    if (facts.is_computed != 0 && (facts.step > lasting_->finished() || is_last)) unfinished_ = facts;
  } else if (start_.continues()) {
    state_ = load_checkpoint(*start_.checkpoint, *model_, *optimizer_, group_);
  } else if (!config_.checkpoint.initial_load_path.empty()) {
    const std::string note = load_first_weights(config_.checkpoint.initial_load_path, *model_);
    if (!note.empty()) start_.notes.push_back(note);
  }
  state_.inputs = std::move(inputs_);
  if (lasting_ && !goes_on()) {
    RunInputs without_files = state_.inputs;
    without_files.corpus.files.clear();
    TrainState left = state_;
    left.inputs = std::move(without_files);
    lasting_->begin({.step = state_.step,
                     .next_row = state_.next_row,
                     .tokens_seen = state_.tokens_seen,
                     .optimizer_steps = optimizer_->steps_taken()},
                    state_json_of({left, {}}), experts_.record({}));
  }
}

// On rank 0, the memory of all ranks: what each had at its highest peak, and what was planned. Collective.
std::vector<RankMemoryBars> Trainer::memory_of_ranks(bool is_shared) const {
  std::vector<int64_t> measured(static_cast<size_t>(ranks_ * kNumMemoryCategories), 0);
  std::ranges::copy(memory_.at_peak_by_category, measured.begin() + rank_ * kNumMemoryCategories);
  if (ranks_ > 1) group_->all_reduce_values<int64_t>(measured);  // each place has one summand that is not 0
  if (rank_ != 0) return {};
  const StepPlan plan = StepPlanner(config_).plan(ranks_, is_shared);
  std::vector<RankMemoryBars> ranks;
  for (size_t r = 0; r < static_cast<size_t>(ranks_); ++r) {
    ranks.push_back({.planned = plan.of_ranks[r % plan.of_ranks.size()].by_category});
    std::copy_n(measured.begin() + static_cast<ptrdiff_t>(r * kNumMemoryCategories), kNumMemoryCategories,
                ranks.back().measured.begin());
  }
  return ranks;
}

// What the run says first.
std::string Trainer::beginning() {
  if (!start_.continues()) {
    return fmt::format("training {} parameters on {} rank{}, {} training rows of {} tokens", model_->parameter_count(),
                       ranks_, ranks_ == 1 ? "" : "s", data_.rows_per_epoch(), config_.data.sequence_length);
  }
  if (goes_on())
    return fmt::format("going on with {} rank{} from step {} in memory", ranks_, ranks_ == 1 ? "" : "s", state_.step);
  const DataCursor cursor = data_.cursor_at(state_.next_row);
  return fmt::format("resuming {} from step {}, row {} of epoch {}", start_.path.string(), state_.step, cursor.row,
                     cursor.epoch);
}

TrainerResult Trainer::run(const TrainerOptions& options) {
  // Rank 0 owns the folder; the others read what it holds once rank 0 has prepared it.
  if (!goes_on()) on_first_rank(group_, [&] { settle_run(start_, config_, options.fresh, *tokenizer_); });
  load();
  if (lasting_ && lasting_->is_over()) return {.step = state_.step};

  StopSignals signals;
  std::optional<RunLog> log;
  if (rank_ == 0) {
    log.emplace(*start_.folder, config_, unfinished_ ? state_.step - 1 : state_.step, options.quiet);
    if (start_.folder->moved_to())
      log->note(fmt::format("moved the old run to {}", start_.folder->moved_to()->string()));
    for (const std::string& note : start_.notes) log->warn(note);
    if (!goes_on()) log->note(describe(data_.corpus().counts()));
    log->note(beginning());
    for (const LostRank& lost : lost_)
      log->warn(fmt::format("rank {} (pid {} on {}) was lost in step {}: {} rank{} on from step {}; {:.2f} s were lost",
                            lost.rank, lost.pid, lost.host, lost.step, ranks_, ranks_ == 1 ? " goes" : "s go",
                            state_.step, lost.seconds_lost));
    if (sharded_ || tensor_.mesh != nullptr || tensor_.experts != nullptr)
      log->note(describe_mesh(*model_, sharded_, config_, ranks_));
    if (!shards_->advice().empty()) log->note(shards_->advice());
    log->set_facts({{"model", fmt::format("{} {}", config_.model.name, config_.model.flavor)},
                    {"parameters", std::to_string(model_->parameter_count())},
                    {"tokenizer", tokenizer_->name()},
                    {"ranks", std::to_string(ranks_)},
                    {"mesh", mesh_name(data_degrees(config_.parallelism, ranks_))}});
    if (config_.validation.every > 0) {
      const int64_t rows = config_.validation.steps < 0
                               ? data_.validation_row_count()
                               : config_.validation.steps * config_.numerics.virtual_shards * rows_per_shard_;
      const double order2 = order2_bits_per_byte(data_, *tokenizer_, rows);
      log->set_order2(order2);
      log->note(fmt::format("order-2 byte model: {:.4f} bits per byte on the held-out text", order2));
    }
  }

  StepTimelineRecorder recorder(config_.metrics.report, group_);
  StepProfiler profiler(config_.profiler, start_.path / "trace", rank_);
  const auto tell = [&](const std::string& note) {
    if (log && !note.empty()) log->note(note);
  };
  TrainerResult result{.step = state_.step};
  int64_t missing = missing_checkpoint();
  const auto replace_missing = [&] {
    if (log)
      log->note(
          fmt::format("the checkpoint of step {} was lost with a rank that wrote it; step {} is saved in its place",
                      missing, state_.step));
    missing = 0;
  };
  int64_t saved =
      start_.checkpoint ||
              (goes_on() && std::filesystem::exists(start_.path / "checkpoint" / fmt::format("step-{}", state_.step)))
          ? state_.step
          : -1;
  const int64_t end = options.stop_at > 0 ? std::min(options.stop_at, config_.training.steps) : config_.training.steps;
  if (missing > 0 && !unfinished_) {  // else the step is logged first
    replace_missing();
    save(start_.path / "checkpoint", log ? &*log : nullptr);
    saved = state_.step;
  }
  while ((state_.step < end || unfinished_) && !result.interrupted) {
    StepRecord record;
    if (unfinished_) {
      record = record_of(*std::exchange(unfinished_, std::nullopt));
    } else {
      tell(profiler.before_step());
      recorder.before_step();
      record = train_step();
      tell(profiler.after_step());
      std::optional<StepTimeline> timeline = recorder.after_step(state_.step);
      if (log && timeline) log->set_timeline(std::move(*timeline));
    }
    const bool last = state_.step == config_.training.steps, ends = state_.step == end;
    record.lost_ranks = std::exchange(lost_, {});
    if (config_.validation.every > 0 && (last || state_.step % config_.validation.every == 0)) {
      if (lasting_) may_be_lost_at("validating", state_.step);
      record.val_bits_per_byte = result.val_bits_per_byte = validate();
    }
    if (log) log->step(record);
    if (lasting_) may_be_lost_at("logged", state_.step);
    std::array<int64_t, 2> news{signals.requested(), lasting_ && lasting_->is_replaced() ? 1 : 0};
    if (ranks_ > 1) group_->all_reduce_values<int64_t>(news);
    result.interrupted = news[0] > 0 && !ends;
    const bool replaces = missing > 0;
    if (replaces) replace_missing();
    if (ends || result.interrupted || replaces ||
        (config_.checkpoint.every > 0 && state_.step % config_.checkpoint.every == 0)) {
      save(start_.path / "checkpoint", log ? &*log : nullptr);
      saved = state_.step;
    }
    if (lasting_) lasting_->note_finished(state_.step, told_losses_);
    if (news[1] > 0 && saver_) note_saved(log ? &*log : nullptr, saver_->wait());  // the next team has other writers
    if (news[1] > 0) throw TeamIsOver(fmt::format("step {} is done, and another team goes on", state_.step));
    result.step = state_.step;
    result.loss = record.loss;
  }
  tell(profiler.finish());
  if (saver_) note_saved(log ? &*log : nullptr, saver_->wait());
  const bool samples = state_.step >= config_.training.steps && config_.validation.sample_tokens > 0;
  std::optional<parallel::UnshardedScope> whole;  // rank 0 reads alone
  if (samples && sharded_) whole.emplace(*sharded_);
  std::string text;
  if (lasting_ && samples) may_be_lost_at("sampling", state_.step);
  const bool helps = (tensor_.mesh != nullptr || tensor_.experts != nullptr) && tensor_.evaluators(group_)->rank() == 0;
  if (samples && (log || helps)) {  // the ranks that divide the model of rank 0 sample with it
    SampleOptions sampling = sample_options(config_);
    sampling.mesh = tensor_.mesh;
    text = sample_text(*model_, *tokenizer_, config_.validation.sample_prompt, sampling);
  }
  const bool is_shared = !sharded_ || sharded_->is_shared();
  std::vector<RankMemoryBars> ranks =
      config_.metrics.report ? memory_of_ranks(is_shared) : std::vector<RankMemoryBars>();
  if (log) {
    if (samples) {
      log->sample(state_.step, text);
      log->note("sample: " + displayable(text));
    }
    if (memory_.peak_bytes > 0) {
      auto rows = memory_rows(memory_);
      rows.emplace_back("planned peak", byte_text(StepPlanner(config_).plan(ranks_, is_shared).of_ranks[0].peak()));
      log->set_memory(rows);
      log->set_ranks(std::move(ranks));
      log->note("peak memory of a step on rank 0: " + memory_line(memory_));
    }
    log->write_report();
    if (saved == state_.step) {
      const Digests digests = read_state(start_.path / "checkpoint" / fmt::format("step-{}", saved)).digests;
      log->note(fmt::format("digest of the {} tensors of step {}: {}", digests.size(), saved, digest_of(digests)));
      if (saved < config_.training.steps)
        log->note(fmt::format("stopped after step {}; the same command {}goes on from there", saved,
                              result.interrupted ? "" : "without --stop-at "));
    }
  }
  if (lasting_ && rank_ == 0) lasting_->note_over();
  if (ranks_ > 1) group_->barrier();
  return result;
}

}  // namespace

TrainerResult train(const Config& config, const TrainerOptions& options) {
  validate(config);
  // A wrong name, and what cannot fit, are said before the data is read.
  const std::string left = options.survivors == nullptr ? "" : options.survivors->job->text();
  if (left.empty())
    check_memory(config, options.group == nullptr ? 1 : options.group->size(), 1,
                 options.group == nullptr || parallel::shares_memory(*options.group),
                 machine_memory());  // else the state has its memory
  if (config.runtime.threads > 0) RankContext::current().set_threads(static_cast<int>(config.runtime.threads));
  RunStart start =
      left.empty() ? find_run(config, options.fresh, options.group) : rejoin_run(config, left, options.group);
  RunData data = open_run_data(config, options.cache_folder, start, options.group);
  if (start.is_in_memory) start.notes.clear();  // they were said when the run started
  return Trainer(config, options, std::move(start), std::move(data)).run(options);
}

}  // namespace tutti::train
