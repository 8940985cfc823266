#include "tutti/train/survival/surviving_run.h"

#include <algorithm>
#include <map>
#include <string>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/wrapper.h"
#include "tutti/job/errors.h"
#include "tutti/ops/copy.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/survival/planted_loss.h"

namespace tutti::train {
namespace {

constexpr auto kPrepareTimeout = std::chrono::minutes(10);
constexpr auto kPatienceWithLeavers = std::chrono::seconds(60);

// What optimizers step, in their order.
std::vector<nn::NamedParameter> trained_parameters(const nn::Module& model) {
  std::vector<nn::NamedParameter> trained;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    if (p.parameter.requires_grad()) trained.push_back(p);
  }
  return trained;
}

}  // namespace

SurvivingRun::SurvivingRun(Survivors& survivors, comm::ProcessGroup& group, const Config& config,
                           const nn::Module& model, size_t extra_bytes)
    : survivors_(survivors),
      group_(group),
      state_(survivors.job, trained_parameters(model), config.optimizer.name == "sgd" ? 1 : 2,
             static_cast<int64_t>(extra_bytes)),
      is_begun_(!survivors.job->text().empty()),
      last_step_(config.training.steps) {}

Survival::MasterMemory SurvivingRun::master_memory() const {
  return [this](const nn::NamedParameter& p) {
    const int64_t i = state_.index_of(p.parameter);
    return i < 0 ? Tensor() : state_.master(static_cast<size_t>(i));
  };
}

// An optimizer asks for the states of a parameter one after the other.
Survival::StateMemory SurvivingRun::state_memory() const {
  return [this, asked = std::map<int64_t, size_t>()](const nn::NamedParameter& p, std::string_view what) mutable {
    const int64_t i = state_.index_of(p.parameter);
    const size_t which = asked[i]++;
    TUTTI_ASSERT(i >= 0 && which < state_.states(), "no memory for the state '{}' of '{}'", what, p.name);
    return state_.state(static_cast<size_t>(i), which);
  };
}

void SurvivingRun::share_masters(const nn::Module& model) const {
  for (const nn::NamedParameter& p : model.named_parameters()) {
    if (const int64_t i = state_.index_of(p.parameter); i >= 0)
      p.parameter.set_master(state_.master(static_cast<size_t>(i)));
  }
}

void SurvivingRun::begin(const TrainState& state, const optim::Optimizer& optimizer, std::span<const std::byte> extra) {
  if (is_begun_) return;
  TrainState left = state;
  left.inputs.corpus.files.clear();  // which only the first rank has read
  const std::string text = state_json_of({left, {}});
  const StepFacts facts{.step = state.step,
                        .next_row = state.next_row,
                        .items_seen = state.items_seen,
                        .optimizer_steps = optimizer.steps_taken()};
  group_.barrier();  // all values are there
  if (is_first()) {
    state_.set_applied(facts.step);
    state_.facts(facts.step) = facts;
    std::copy(extra.begin(), extra.end(), state_.extra(facts.step).begin());
    state_.finished().store(facts.step);
    state_.vote().begin(facts.step);
    survivors_.job->leave_text(text);  // from here on the state counts
  }
  group_.barrier();
  committed_ = facts.step;
}

std::optional<Survival::Left> SurvivingRun::recover(optim::Optimizer& optimizer) {
  if (!is_begun_) return std::nullopt;
  const TraceSpan span(TraceCategory::annotation, "recover the step of another team");
  group_.barrier();  // nobody of the teams before votes any more
  const comm::Verdict verdict = state_.vote().verdict();
  const bool was_cut = verdict.kind == comm::Verdict::Kind::aborted;
  committed_ = was_cut ? verdict.step - 1 : verdict.step;
  const StepFacts facts = state_.facts(committed_);
  TUTTI_ASSERT(facts.step == committed_, "the record is of step {}, committed is {}", facts.step, committed_);
  // Not only a vote that was lost: whoever dies before it leaves a step that nobody votes about.
  const int64_t began = state_.step_began_ns().load();
  cut_since_ns_ = began;
  lost_in_ = began != 0 ? committed_ + 1 : committed_;
  const int ranks = group_.size();
  for (int slot = survivors_.rank; slot < survivors_.job->seats(); slot += ranks) state_.restore(slot, committed_);
  group_.barrier();  // records may be written anew
  apply(facts, optimizer);
  optimizer.set_steps_taken(facts.optimizer_steps);
  Left left{.facts = facts, .extra = state_.extra(committed_), .lost = untold()};
  told_ = static_cast<size_t>(state_.told_deaths().load()) + left.lost.size();
  // The end of the run tells what was lost with the last step.
  const bool is_last = facts.step >= last_step_ && !left.lost.empty();
  left.is_unfinished = facts.is_computed != 0 && (facts.step > state_.finished().load() || is_last);
  return left;
}

// Each rank steps its blocks, those that a rank before has not.
void SurvivingRun::apply(const StepFacts& facts, optim::Optimizer& optimizer) {
  if (facts.optimizer_steps > 0) optimizer.begin_step(facts.optimizer_steps, facts.lr, facts.grad_scale);
  const SurvivingState::Range mine = state_.blocks_of(survivors_.rank, group_.size());
  for (size_t b = mine.begin; b < mine.end; ++b) {
    state_.apply(b, facts.step, survivors_.rank, [&](const SurvivingState::Piece& piece) {
      optimizer.step_piece(piece.parameter, piece.master, piece.gradient, piece.state);
    });
  }
  may_be_lost_at("applied", facts.step);
  group_.barrier();  // all blocks are stepped
  for (const nn::NamedParameter& p : optimizer.parameters()) p.parameter.stored().storage()->bump_version();
}

// Where gradients are divided, a rank has its part and writes that; else all ranks have the whole, and each writes the
// blocks that it will step.
void SurvivingRun::write_gradients(std::span<const Tensor> stored) {
  const SurvivingState::Range mine = state_.blocks_of(survivors_.rank, group_.size());
  for (size_t b = mine.begin; b < mine.end; ++b) {
    const SurvivingState::Block& block = state_.blocks()[b];
    const Tensor& gradient = stored[block.parameter];
    if (!gradient.defined() || dist::is_dtensor(gradient)) continue;
    const auto part = [&](const Tensor& whole) {
      return whole.view_as({block.end - block.begin}, {1}, whole.offset() + block.begin);
    };
    copy_(part(state_.gradient(block.parameter)), part(to_contiguous(gradient)));
  }
  for (size_t p = 0; p < stored.size(); ++p) {
    if (!stored[p].defined() || !dist::is_dtensor(stored[p])) continue;
    const dist::Part& part = dist::part_of(stored[p], "a step that outlives a rank");
    copy_(dist::part_in_whole(state_.gradient(p), *part.spec, part.mesh->coordinate()), part.local);
  }
}

void SurvivingRun::step(std::span<const Tensor> gradients, const StepFacts& facts, optim::Optimizer& optimizer,
                        std::span<const std::byte> extra) {
  const NoGradScope no_grad;
  optimizer.check_step(gradients, facts.lr, facts.grad_scale);
  write_gradients(gradients);
  if (is_first()) {
    state_.facts(facts.step) = facts;
    std::copy(extra.begin(), extra.end(), state_.extra(facts.step).begin());
  }
  may_be_lost_at("computed", facts.step);
  comm::StepVote vote = state_.vote();
  vote.prepare(survivors_.rank, survivors_.team, facts.step);
  may_be_lost_at("prepared", facts.step);
  // A replacement that is ready joins after the step. Only a rank that has left for the next team without a step,
  // because of an error that others do not have, is given up.
  const auto now = std::chrono::steady_clock::now;
  const auto patience = now() + kPatienceWithLeavers;
  const comm::Verdict verdict = vote.decide(
      group_.size(), survivors_.team, facts.step,
      [&] { return survivors_.has_lost_one() || (survivors_.is_replaced() && now() > patience); },
      now() + kPrepareTimeout);
  if (verdict.step != facts.step) {
    std::vector<std::string> late;
    for (int r = 0; r < group_.size(); ++r) {
      if (!vote.is_prepared(r, survivors_.team, facts.step))
        late.push_back(fmt::format("{} (pid {})", r, survivors_.members[static_cast<size_t>(r)].pid));
    }
    throw comm::TimeoutError(fmt::format("step {}: ranks {} did not prepare it within {} minutes", facts.step,
                                         fmt::join(late, ", "), std::chrono::minutes(kPrepareTimeout).count()));
  }
  if (verdict.kind == comm::Verdict::Kind::aborted)
    throw TeamIsOver(fmt::format("step {} was given up, because a rank was lost", facts.step));
  committed_ = facts.step;
  state_.step_began_ns().store(0);
  apply(facts, optimizer);
}

void SurvivingRun::add_memory(MemoryStatistics& memory) const {
  const auto add = [&](MemoryCategory category, int64_t bytes) {
    const int64_t mine = bytes / group_.size();
    memory.peak_bytes += mine;
    memory.at_peak_by_category[static_cast<size_t>(category)] += mine;
  };
  const int64_t array = state_.array_bytes(), states = static_cast<int64_t>(state_.states());
  add(MemoryCategory::parameters, array);
  add(MemoryCategory::optimizer, array * states);
  add(MemoryCategory::gradients, array);
  add(MemoryCategory::workspace, state_.nbytes() - array * (2 + states));
}

void SurvivingRun::note_beginning() {
  int64_t none = 0;
  state_.step_began_ns().compare_exchange_strong(none, comm::monotonic_ns());
}

void SurvivingRun::note_finished(int64_t step) {
  if (!is_first()) return;
  state_.told_deaths().store(static_cast<int64_t>(told_));
  state_.finished().store(step);
}

bool SurvivingRun::is_lost_at(std::string_view point, int64_t step) const { return train::is_lost_at(point, step); }

std::vector<LostRank> SurvivingRun::untold() const {
  std::vector<LostRank> lost;
  const std::vector<comm::RankDeath> deaths = survivors_.job->deaths();
  const int64_t now = comm::monotonic_ns();
  for (size_t i = static_cast<size_t>(state_.told_deaths().load()); i < deaths.size(); ++i) {
    const int64_t since = cut_since_ns_ != 0 ? std::min(cut_since_ns_, deaths[i].at_ns) : deaths[i].at_ns;
    lost.push_back({.rank = deaths[i].seat,
                    .pid = deaths[i].pid,
                    .host = host_name(),
                    .step = lost_in_,
                    .seconds_lost = static_cast<double>(now - since) / 1e9});
  }
  return lost;
}

}  // namespace tutti::train
