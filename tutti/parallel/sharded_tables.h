// ShardedTables: embedding tables that ranks divide by a plan, with the bits of one rank for every plan.
//
//   const EmbeddingPlan plan = plan_embeddings(planned, {.ranks = group.size(), .memory_bytes = memory});
//   parallel::ShardedTables tables(configs, {.optimizer = TableStep{.lr = 0.05}}, plan, 8, &group);
//   tables.initialize();
//   ...
//   const std::vector<Tensor> looked_up = tables.look_up(batches);  // one batch for each shard of this rank
//   for (parallel::Shard& shard : shards.step(step)) { ... shard.backward(...); }
//   shards.finish_step(*optimizer);
//   tables.step();
//
// Ranks exchange once for the lookups of a step and once for their gradients. How a table travels is its placement's
// affair (embedding_plan.h): pooled rows of whole tables and of slices of columns; each needed row once, unpooled,
// where rows are divided, and its gradient back; and the gradients of the rows that were used, to all, where every rank
// has the table. Where per_sample_weights want a gradient, which backward() computes out of whole rows, all tables but
// those on every rank travel as those whose rows are divided. What a row is added up from is always in the order of
// table_batched_backward.h.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/parallel/bag_list.h"
#include "tutti/parallel/embedding_plan.h"
#include "tutti/parallel/held_table.h"
#include "tutti/parallel/parcels.h"
#include "tutti/parallel/schedule.h"

namespace tutti::parallel {

// What a plan needs to know of a table whose bags have so many rows.
PlannedTable planned_table(const nn::TableConfig& table, const nn::TableBatchedOptions& options, double pooling);

// Tables have names as those of nn::TableBatchedEmbeddingBags, and are not parameters: initialize(), boxes() and load()
// are for their values. Modules take it as a child for its training or evaluation mode.
//
// All ranks of the group make the same calls, each with batches of its own; calls that are collective say so. When one
// rank refuses its arguments, all throw a UsageError, and can go on. Belongs to one thread of a rank, but that the
// backward() of several results may run on several threads at once.
class ShardedTables : public nn::Module {
 public:
  // `plan` is for the ranks of `group` (null: one rank), which must outlive this. A step has `shards` virtual shards,
  // which are divided as `schedule` says. Memory is that of this rank's parts. UsageError on all ranks when they have
  // other arguments, and when on one of them the plan is of other tables or ranks, or options have no optimizer.
  // Collective.
  ShardedTables(std::vector<nn::TableConfig> tables, nn::TableBatchedOptions options, const EmbeddingPlan& plan,
                int64_t shards, comm::ProcessGroup* group, Schedule schedule = Schedule::once_a_step);
  ~ShardedTables() override;

  // Fills the tables as nn::initialize() fills those of nn::TableBatchedEmbeddingBags under the rank's seed. Not
  // collective; the next look_up() compares what the ranks have called.
  void initialize();
  // Whether initialize() or load() has given the tables values.
  bool has_values() const { return values_ != kNoValues; }

  // The lookups of all batches, as nn::TableBatchedEmbeddingBags::forward() of each. In training mode while gradients
  // are recorded, these are the lookups of a step: one batch for each shard of this rank, in the order of shards(), and
  // one call before step(). Otherwise any number of batches, also none. Batches may be changed afterwards. UsageError
  // on all ranks for batches that table_batched_embedding_bags() refuses, for per_sample_weights that only some batches
  // have, or of which only some want a gradient, in a compiled function, before tables have values, for another number
  // of batches, and when ranks are in other modes or steps or have other values. Collective.
  std::vector<Tensor> look_up(std::span<const TableBatch> batches);
  // The same in two calls: indices travel while other work runs, such as the dense part of the step before, whose
  // step() may come between them. Both are collective.
  void send_indices(std::span<const TableBatch> batches);
  std::vector<Tensor> look_up();
  // The virtual shards of this rank.
  const std::vector<int64_t>& shards() const { return local_; }

  // One step on all rows that were looked up since the last one and that a backward() has reached, as
  // nn::TableBatchedEmbeddingBags::step(). UsageError on all ranks when backward() has reached no lookup on any, or
  // when on one of them tables were changed since, or lr or seed are others; nothing has changed then. A failure behind
  // the first write, such as memory that runs out, leaves the tables of ranks in different steps: go on from a
  // checkpoint. Collective.
  void step();
  // Forgets what was looked up since the last step, and indices that were sent. Not collective, but all ranks must do
  // so, and begin the same step again.
  void abandon_step();

  double lr() const { return options_.optimizer->lr; }
  void set_lr(double lr);
  int64_t steps_taken() const { return steps_; }

  // What this rank holds of each tensor of a checkpoint in global coordinates, tables first: "NAME.weight", then
  // "state.NAME.weight.h" and so on as nn::TableBatchedEmbeddingBags::optimizer_state() has them. The same names in the
  // same order on all ranks. steps_taken() is "state.iter" there.
  std::vector<TensorBox> boxes() const;
  // Call after code of your own has written the values of boxes(), on all ranks: they are those after so many steps.
  // Forgets what was looked up since the last step. UsageError for a negative number.
  void values_are_those_after(int64_t steps);
  // All tensors whole, and "state.iter", on every rank: for tables that fit. UsageError before tables have values.
  // Collective.
  nn::StateDict gathered() const;
  // Copies this rank's parts out of whole tensors, which may lie in the pages of a file, and forgets what was looked up
  // since the last step. With the tables alone the optimizer begins anew. UsageError, before anything is copied, for
  // names that are missing or unknown and for other sizes or dtypes. Not collective, but all ranks must load the same.
  void load(const nn::StateDict& whole);

  const std::vector<nn::TableConfig>& tables() const { return tables_; }
  const nn::TableBatchedOptions& options() const { return options_; }
  // Bytes that this rank has sent to others since it began, without the sizes that go before them.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  // How a table's rows come to the ranks that look them up.
  enum class Route : uint8_t {
    pooled,  // their holders pool them
    rows,    // once each
    here,    // they are on all ranks, or there is only one
  };
  struct Lookup;   // of all batches of a call
  struct Reached;  // what the backward nodes of a lookup share
  struct Gradients;
  struct UsesOfTable;
  struct DividedStep;
  static constexpr int64_t kNoValues = 0;

  Route route_of(size_t table) const;
  Route route_in(const Lookup& lookup, size_t table) const;
  const TablePart* part_on(size_t table, int rank) const;
  void prepare(const EmbeddingPlan& plan);
  std::string facts() const;
  void check_plan(const EmbeddingPlan& plan) const;
  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  ParcelExchange exchange(const char* what, const std::function<Parcels()>& make);
  // Calls visit(batch, table, feature) for the features of `batches` batches that look up tables of which is(table) is
  // true: batch by batch, table by table.
  template <class Is, class Visit>
  void each_feature(size_t batches, Is is, Visit visit) const;

  std::unique_ptr<Lookup> checked(std::span<const TableBatch> batches) const;
  std::vector<Tensor> requests(Lookup& lookup) const;
  std::vector<std::vector<int64_t>> places_of_rows(Lookup& lookup) const;
  void make_own_batches(Lookup& lookup) const;
  DType result_dtype() const;
  std::vector<Tensor> answers(Lookup& lookup, std::span<const std::string_view> parcels) const;
  std::vector<Tensor> assembled(const Lookup& lookup, std::span<const std::string_view> parcels) const;
  std::vector<Tensor> needed_rows(const Lookup& lookup, std::vector<ParcelReader>& readers) const;
  TableBatchResult looked_up(std::vector<Tensor> tables, const TableBatch& batch) const;
  Tensor pooled_for_others(const BagList& bags) const;
  Tensor recorded(const Tensor& values, size_t batch) const;

  std::vector<TableUse> own_uses() const;
  std::vector<Tensor> gradients_by_rank() const;
  Gradients received_gradients(std::span<const std::string_view> parcels) const;
  std::vector<TableUse> uses_of_pooled(size_t table, const Gradients& received) const;
  UsesOfTable uses_of(size_t table, const Gradients& received) const;
  std::vector<DividedStep> divided_steps(const Gradients& received) const;
  Parcels squares_by_rank(const std::vector<DividedStep>& steps, Tensor DividedStep::* squares) const;
  void add_squares(std::vector<DividedStep>& steps, Tensor DividedStep::* squares,
                   std::span<const std::string_view> parcels) const;
  void write_step(Gradients& received, const std::vector<DividedStep>& divided, const TableStep& options);

  const std::vector<nn::TableConfig> tables_;
  nn::TableBatchedOptions options_;
  comm::ProcessGroup* const group_;
  const int64_t count_;
  const Schedule schedule_;
  std::vector<int64_t> local_;
  std::vector<TablePlan> plan_;
  std::vector<int32_t> part_at_;               // of each table and rank: which of the plan's parts, or -1
  std::vector<std::vector<size_t>> features_;  // of each table
  std::vector<HeldTable> held_;
  int64_t values_ = kNoValues;  // a number that ranks have in common when they have made the same calls
  int64_t steps_ = 0, sent_bytes_ = 0;
  std::unique_ptr<Lookup> sent_;     // by send_indices()
  std::unique_ptr<Lookup> of_step_;  // whose gradients step() takes
  std::shared_ptr<Reached> reached_;
  Tensor anchor_;  // a leaf, so that backward() comes here although no table requires grad
};

}  // namespace tutti::parallel
