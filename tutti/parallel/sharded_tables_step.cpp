// Steps of ShardedTables: gradients go to the ranks that hold the rows, which step them.
#include <algorithm>
#include <bit>
#include <cstdio>

#include "tutti/autograd/tape.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/parallel/sharded_tables_parts.h"
#include "tutti/tensor/host_read.h"

namespace tutti::parallel {

static constexpr TableBatchOptions kRows{.pooling = TablePooling::none};

std::vector<TableUse> ShardedTables::uses_of_pooled(size_t table, const Gradients& received) const {
  std::vector<TableUse> uses(static_cast<size_t>(count_));
  for (const Gradients::Run& run : received.pooled[table]) {
    TableUse& use = uses[static_cast<size_t>(run.shard)];
    use =
        use_of_pieces(of_step_->received[run.rank], run.begin, run.end, held_[table].columns(), options_.batch.pooling);
    char* to = static_cast<char*>(use.grad.raw_data());
    for (const std::string_view gradient : run.of_pieces) {
      if (!gradient.empty()) std::memcpy(to, gradient.data(), gradient.size());
      to += gradient.size();
    }
  }
  return uses;
}

ShardedTables::UsesOfTable ShardedTables::uses_of(size_t table, const Gradients& received) const {
  TableBatchOptions batch = options_.batch;
  batch.bounds = BoundsCheck::ignore;
  if (route_in(*of_step_, table) == Route::pooled)
    return {uses_of_pooled(table, received), held_[table].of_batch(), batch};
  if (ranks() > 1) return {received.rows[table], held_[table].of_batch(), kRows};
  TableOfBatch which{static_cast<int64_t>(table), {}, tables_[table].rows};
  for (const nn::TableConfig& t : tables_) which.columns.push_back(t.columns);
  return {own_uses(), which, batch};
}

std::vector<ShardedTables::DividedStep> ShardedTables::divided_steps(const Gradients& received) const {
  std::vector<DividedStep> steps;
  if (!takes_row_means(options_.optimizer->optimizer)) return steps;
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (!held_[t].has_any() || features_[t].empty() || held_[t].columns() == tables_[t].columns) continue;
    const auto [uses, which, batch] = uses_of(t, received);
    const RowGradients sums = table_batched_row_gradients(uses, which, batch).trimmed();
    const Tensor rows = to_contiguous(sums.rows), values = to_contiguous(sums.values);
    steps.push_back({t, use_of_rows(rows, values),
                     facets::table_row_squares(held_[t].weight, {rows, values, {}}, *options_.optimizer)});
  }
  return steps;
}

Parcels ShardedTables::squares_by_rank(const std::vector<DividedStep>& steps, Tensor DividedStep::* squares) const {
  std::vector<ParcelWriter> parcels(static_cast<size_t>(ranks()));
  for (const DividedStep& step : steps) {
    for (const TablePart& part : plan_[step.table].parts) {
      ParcelWriter& parcel = parcels[static_cast<size_t>(part.rank)];
      parcel.put((step.*squares).numel());
      parcel.put((step.*squares).data<float>(), (step.*squares).numel());
    }
  }
  Parcels bytes;
  for (ParcelWriter& parcel : parcels) bytes.list.push_back(parcel.take());
  return bytes;
}

// Adds the sums of squares of slices of rows, by halving, on each rank that has a slice.
void ShardedTables::add_squares(std::vector<DividedStep>& steps, Tensor DividedStep::* squares,
                                std::span<const std::string_view> parcels) const {
  std::vector<ParcelReader> readers;
  for (const std::string_view parcel : parcels) readers.emplace_back("ShardedTables::step", parcel);
  for (DividedStep& step : steps) {
    const int64_t n = (step.*squares).numel();
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
    step.*squares = Tensor::of<float>(slices[0]);
  }
}

// Table by table, so that the gradients of only one are there twice.
void ShardedTables::write_step(Gradients& received, const std::vector<DividedStep>& divided, const TableStep& options) {
  auto next = divided.begin();
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (!held_[t].has_any() || features_[t].empty()) continue;
    if (next != divided.end() && next->table == t) {
      held_[t].step({&next->rows, 1}, held_[t].of_batch(), options, kRows, next->squares, next->new_squares);
      ++next;
    } else {
      const auto [uses, which, batch] = uses_of(t, received);
      held_[t].step(uses, which, options, batch);
    }
    received.rows[t].clear();
  }
}

void ShardedTables::step() {
  TUTTI_CHECK(HostReads::current() == nullptr,
              "ShardedTables::step: a compiled function cannot step tables; call step() outside of compile()");
  const NoGradScope no_grad;
  const std::lock_guard lock(reached_->mutex);
  ParcelExchange sending = exchange("ShardedTables::step", [&]() -> Parcels {
    TUTTI_CHECK(of_step_,
                "ShardedTables::step: there was no lookup since the last step on rank {}; lookups count that training "
                "mode records",
                rank());
    for (size_t t = 0; t < held_.size(); ++t)
      TUTTI_CHECK(!held_[t].has_any() || held_[t].weight.version() == of_step_->versions[t],
                  "ShardedTables::step: table {} was changed after its rows were looked up; call abandon_step()",
                  tables_[t].name);
    for (Tensor& grad : reached_->gradients)
      if (grad.defined()) grad = facets::dense_as(grad, DType::f32);
    return {gradients_by_rank(),
            {{"the number of steps taken", steps_},
             {"lr", std::bit_cast<int64_t>(lr()), true},
             {"the key of the seed", static_cast<int64_t>(random_key("ShardedTables").key)}}};
  });
  const std::vector<std::string_view> parcels = sending.wait();
  Gradients received;
  std::vector<DividedStep> divided;
  // What may still fail does so before any rank writes.
  ParcelExchange squares = exchange("ShardedTables::step", [&]() -> Parcels {
    received = received_gradients(parcels);
    TUTTI_CHECK(received.any,
                "ShardedTables::step: backward() reached no lookup of any rank since the last step; lookups count that "
                "training mode records");
    divided = divided_steps(received);
    return squares_by_rank(divided, &DividedStep::squares);
  });
  add_squares(divided, &DividedStep::squares, squares.wait());
  TableStep options = *options_.optimizer;
  options.step = steps_ + 1;
  if (options.max_norm > 0) {
    ParcelExchange norms = exchange("ShardedTables::step", [&] {
      for (DividedStep& step : divided) {
        const HeldTable& held = held_[step.table];
        step.new_squares =
            facets::table_new_row_squares(held.weight, held.state, {step.rows.batch.indices, step.rows.grad, {}},
                                          options, step.squares, tables_[step.table].columns);
      }
      return squares_by_rank(divided, &DividedStep::new_squares);
    });
    add_squares(divided, &DividedStep::new_squares, norms.wait());
  }
  try {
    write_step(received, divided, options);
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
