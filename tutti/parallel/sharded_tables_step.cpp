// Steps of ShardedTables: gradients go to the ranks that hold the rows, which step them.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <numeric>

#include "tutti/autograd/tape.h"
#include "tutti/core/hash.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/parallel/sharded_lookup.h"
#include "tutti/tensor/host_read.h"

namespace tutti::parallel {

// A step of one table.
struct ShardedTables::Stepped {
  size_t table;
  std::vector<TableUse> uses;
  TableBatchOptions batch;
  Tensor squares;  // where columns are divided and the optimizer takes means over rows
};

static constexpr TableBatchOptions kRows{.pooling = TablePooling::none};

std::vector<TableUse> ShardedTables::uses_of_pooled(size_t table, const Gradients& received) const {
  std::vector<TableUse> uses(static_cast<size_t>(count_));
  for (size_t r = 0; r < received.batches.size(); ++r) {
    const BagList& list = of_step_->received[r];
    std::vector<size_t> next(received.batches[r].size(), 0);  // piece of each batch
    for (size_t begin = 0, end = 0; begin < list.pieces.size(); begin = end) {
      end = end_of_table(list, begin);
      const size_t b = static_cast<size_t>(list.pieces[begin].batch), first = next[b];
      next[b] += end - begin;
      const Gradients::Batch& batch = received.batches[r][b];
      if (list.pieces[begin].table != static_cast<int64_t>(table) || batch.shard < 0) continue;
      uses[static_cast<size_t>(batch.shard)] =
          use_of_pieces(list, begin, end, std::span(batch.of_pieces).subspan(first, end - begin),
                        held_[table].columns(), options_.batch.pooling);
    }
  }
  return uses;
}

// The steps of the tables that are here, in their order.
std::vector<ShardedTables::Stepped> ShardedTables::steps_of(const Gradients& received) {
  std::vector<Stepped> steps;
  TableBatchOptions pooled = options_.batch;
  pooled.bounds = BoundsCheck::ignore;
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (!held_[t].has_any() || features_[t].empty()) continue;
    if (route_of(t) != Route::pooled) {
      steps.push_back({t, received.rows[t], kRows, {}});
      continue;
    }
    std::vector<TableUse> uses = uses_of_pooled(t, received);
    const bool divided = held_[t].columns() < tables_[t].columns;
    if (!divided || !takes_row_means(options_.optimizer->optimizer)) {
      steps.push_back({t, std::move(uses), pooled, {}});
      continue;
    }
    const RowGradients sums = table_batched_row_gradients(uses, held_[t].of_batch(), pooled).trimmed();
    const Tensor rows = to_contiguous(sums.rows), values = to_contiguous(sums.values);
    steps.push_back({t,
                     {use_of_rows(rows, values)},
                     kRows,
                     table_row_squares(held_[t].weight, {rows, values, {}}, *options_.optimizer)});
  }
  return steps;
}

// Adds the sums of squares of slices of rows, by halving, on each rank that has a slice.
void ShardedTables::exchange_squares(std::vector<Stepped>& steps) {
  bool any = false;
  for (size_t t = 0; t < tables_.size(); ++t) any = any || (plan_[t].parts.size() > 1 && route_of(t) == Route::pooled);
  if (!any || !takes_row_means(options_.optimizer->optimizer)) return;
  ParcelExchange sending = exchange("ShardedTables::step", agreement_, [&] {
    std::vector<ParcelWriter> parcels(static_cast<size_t>(ranks()));
    for (const Stepped& step : steps) {
      if (!step.squares.defined()) continue;
      for (const TablePart& part : plan_[step.table].parts) {
        ParcelWriter& parcel = parcels[static_cast<size_t>(part.rank)];
        parcel.put(step.squares.numel());
        parcel.put(step.squares.data<float>(), step.squares.numel());
      }
    }
    std::vector<Tensor> bytes;
    for (ParcelWriter& parcel : parcels) bytes.push_back(parcel.take());
    return bytes;
  });
  std::vector<ParcelReader> readers;
  for (const std::string_view parcel : sending.wait()) readers.emplace_back("ShardedTables::step", parcel);
  for (Stepped& step : steps) {
    if (!step.squares.defined()) continue;
    const int64_t n = step.squares.numel();
    std::vector<std::vector<float>> slices;
    for (const TablePart& part : plan_[step.table].parts) {
      ParcelReader& reader = readers[static_cast<size_t>(part.rank)];
      const int64_t sent = reader.count(sizeof(float));
      TUTTI_CHECK_ENV(sent == n, "ShardedTables::step: rank {} has stepped {} rows of table '{}'; here are {}",
                      part.rank, sent, tables_[step.table].name, n);
      reader.get(slices.emplace_back(static_cast<size_t>(n)).data(), n);
    }
    for (; slices.size() > 1; slices.resize(slices.size() / 2))
      for (size_t i = 0; i < slices.size() / 2; ++i)
        for (size_t row = 0; row < static_cast<size_t>(n); ++row)
          slices[i][row] = slices[2 * i][row] + slices[2 * i + 1][row];
    step.squares = Tensor::of<float>(slices[0]);
  }
}

void ShardedTables::step() {
  TUTTI_CHECK(HostReads::current() == nullptr,
              "ShardedTables::step: a compiled function cannot step tables; call step() outside of compile()");
  const NoGradScope no_grad;
  const std::lock_guard lock(reached_->mutex);
  // Ranks with another lr would make other steps of the tables that several of them hold.
  const uint64_t agreement = hash64(fmt::format("{} {} {}", agreement_, lr(), steps_)) | 1;
  ParcelExchange sending = exchange("ShardedTables::step", agreement, [&] {
    const auto is_reached = [](const Tensor& grad) { return grad.defined(); };
    TUTTI_CHECK(of_step_ && std::any_of(reached_->gradients.begin(), reached_->gradients.end(), is_reached),
                "ShardedTables::step: backward() reached no lookup of rank {} since the last step; lookups count that "
                "training mode records",
                rank());
    for (size_t t = 0; t < held_.size(); ++t)
      TUTTI_CHECK(!held_[t].has_any() || held_[t].weight.version() == of_step_->versions[t],
                  "ShardedTables::step: table {} was changed after its rows were looked up; call abandon_step()",
                  tables_[t].name);
    for (Tensor& grad : reached_->gradients)
      if (grad.defined()) grad = facets::dense_as(grad, DType::f32);
    return gradients_by_rank();
  });
  const Gradients received = received_gradients(sending.wait());
  std::vector<Stepped> steps = steps_of(received);
  exchange_squares(steps);
  TableStep options = *options_.optimizer;
  options.step = steps_ + 1;
  try {
    for (const Stepped& step : steps) held_[step.table].step(step.uses, options, step.batch, step.squares);
  } catch (...) {
    std::fprintf(stderr,
                 "tutti: ShardedTables::step: rank %d has failed at a table, and other tables and ranks may have taken "
                 "the step; go on from a checkpoint\n",
                 rank());
    throw;
  }
  ++steps_;
  of_step_.reset();
  ++reached_->lookup;
  reached_->gradients.clear();
}

}  // namespace tutti::parallel
