// Lookups of ShardedTables: results put together of what other ranks have answered.
#include <algorithm>

#include "tutti/autograd/function.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/parallel/sharded_tables_parts.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::parallel {

// Calls copy(offset in the result, offset in the block, bytes) for each row.
template <class Copy>
static void each_row(const CheckedBatch::Rows& rows, int64_t begin, int64_t end, int64_t size, Copy copy) {
  const int64_t n = (end - begin) * size;
  if (n == 0) return;
  const int64_t grain = std::max<int64_t>(kParallelGrain / (end - begin + 1), 1);
  ThreadPool::current().parallel_for(rows.count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      copy((rows.base + i * rows.stride + begin) * size, i * n, static_cast<size_t>(n));
  });
}

void place_block(char* result, const CheckedBatch::Rows& rows, int64_t begin, int64_t end, int64_t size,
                 const char* block) {
  each_row(rows, begin, end, size,
           [&](int64_t to, int64_t from, size_t n) { std::memcpy(result + to, block + from, n); });
}

void take_block(const char* result, const CheckedBatch::Rows& rows, int64_t begin, int64_t end, int64_t size,
                char* block) {
  each_row(rows, begin, end, size,
           [&](int64_t from, int64_t to, size_t n) { std::memcpy(block + to, result + from, n); });
}

TableBatchResult ShardedTables::looked_up(std::vector<Tensor> tables, const TableBatch& batch) const {
  TableBatchOptions options = options_.batch;
  options.bounds = BoundsCheck::ignore;  // who asks has told of them
  // A call has a table of every number. Those without rows are never looked up.
  for (Tensor& table : tables)
    if (!table.defined()) table = Tensor::empty({0, 0}, options_.dtype);
  return table_batched_embedding_bags(tables, batch, options);
}

// The rows that the batches of a lookup need, of tables by Route::rows, and the tables that are here.
std::vector<Tensor> ShardedTables::needed_rows(const Lookup& lookup, std::vector<ParcelReader>& readers) const {
  std::vector<Tensor> tables(tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Route route = route_in(lookup, t);
    if (route == Route::here) tables[t] = held_[t].weight;
    if (route != Route::rows) continue;
    const std::vector<int64_t>& rows = lookup.needed[t];
    tables[t] = Tensor::empty({std::ssize(rows), tables_[t].columns}, options_.dtype);
    for (int r = 0; r < ranks(); ++r) {
      const TablePart* const part = part_on(t, r);
      if (part == nullptr) continue;
      const auto begin = std::lower_bound(rows.begin(), rows.end(), part->row_begin),
                 end = std::lower_bound(begin, rows.end(), part->row_end);
      const int64_t columns = part->column_end - part->column_begin, size = itemsize(options_.dtype);
      const std::string_view bytes = readers[static_cast<size_t>(r)].take((end - begin) * columns, size);
      if (bytes.empty()) continue;
      char* const to = static_cast<char*>(tables[t].raw_data()) + (begin - rows.begin()) * row_nbytes(tables[t]);
      place_block(to, {end - begin, 0, tables_[t].columns, columns}, part->column_begin, part->column_end, size,
                  bytes.data());
    }
  }
  return tables;
}

// The results of this rank's batches.
std::vector<Tensor> ShardedTables::assembled(const Lookup& lookup, std::span<const std::string_view> parcels) const {
  std::vector<ParcelReader> readers;
  for (const std::string_view parcel : parcels) readers.emplace_back("ShardedTables::look_up", parcel);
  std::vector<Tensor> results;
  const int64_t size = itemsize(result_dtype());
  if (!lookup.own_is_all) {
    for (const CheckedBatch& batch : lookup.batches)
      results.push_back(Tensor::empty(concrete(batch.result), result_dtype()));
    each_feature(
        results.size(), [&](size_t t) { return route_in(lookup, t) == Route::pooled; },
        [&](size_t b, size_t t, size_t f) {
          const CheckedBatch::Rows& rows = lookup.batches[b].rows[f];
          for (const TablePart& part : plan_[t].parts)
            place_block(static_cast<char*>(results[b].raw_data()), rows, part.column_begin, part.column_end, size,
                        readers[static_cast<size_t>(part.rank)]
                            .take(rows.count * (part.column_end - part.column_begin), size)
                            .data());
        });
  }
  const std::vector<Tensor> tables = needed_rows(lookup, readers);
  for (size_t b = 0; b < lookup.own.size(); ++b) {
    TableBatch own = lookup.own[b];
    if (lookup.wants_gradients) {
      const EnableGradScope with_grad;
      own.per_sample_weights = lookup.weights[b];
      results.push_back(looked_up(tables, own).values);
      continue;
    }
    const Tensor values = looked_up(tables, own).values;
    if (lookup.own_is_all) {
      results.push_back(values);
      continue;
    }
    const char* block = static_cast<const char*>(values.raw_data());
    for (size_t f = 0; f < options_.features.size(); ++f) {
      if (route_in(lookup, static_cast<size_t>(options_.features[f])) == Route::pooled) continue;
      const CheckedBatch::Rows& rows = lookup.batches[b].rows[f];
      place_block(static_cast<char*>(results[b].raw_data()), rows, 0, rows.width, size, block);
      block += rows.count * rows.width * size;
    }
  }
  return results;
}

// `values` with a node before them that keeps their gradient for step().
Tensor ShardedTables::recorded(const Tensor& values, size_t batch) const {
  int64_t lookup = 0;
  {
    const std::lock_guard lock(reached_->mutex);
    lookup = reached_->lookup;
  }
  const autograd::Function keep(
      "ShardedTables", [](autograd::FunctionContext&, std::span<const Tensor> in) { return std::vector{in[0]}; },
      [reached = reached_, lookup, batch](const autograd::FunctionContext&, std::span<const Tensor> grads) {
        std::vector<Tensor> result = {grads[0], {}};
        if (!grads[0].defined()) return result;
        const NoGradScope no_grad;
        const std::lock_guard lock(reached->mutex);
        if (lookup != reached->lookup) return result;
        Tensor& grad = reached->gradients[batch];
        grad = grad.defined() ? add(grad, grads[0]) : detach(grads[0]);
        return result;
      });
  return keep(values, anchor_);
}

std::vector<Tensor> ShardedTables::look_up(std::span<const TableBatch> batches) {
  send_indices(batches);
  return look_up();
}

std::vector<Tensor> ShardedTables::look_up() {
  TUTTI_CHECK(sent_, "ShardedTables::look_up: no indices were sent; call send_indices() before, or give the batches");
  std::vector<Tensor> results;
  {
    const NoGradScope no_grad;
    ParcelExchange answering = exchange("ShardedTables::look_up", [&]() -> Parcels {
      TUTTI_CHECK(
          !sent_->is_of_step || !of_step_,
          "ShardedTables: there were lookups since the last step; call step() or abandon_step(), and look up in eval() "
          "mode where no step follows");
      return {answers(*sent_, sent_->requests->wait())};
    });
    sent_->requests.reset();
    results = assembled(*sent_, answering.wait());
  }
  std::unique_ptr<Lookup> lookup = std::move(sent_);
  if (!lookup->is_of_step) return results;
  {
    const std::lock_guard lock(reached_->mutex);
    reached_->gradients.assign(lookup->batches.size(), {});
    ++reached_->lookup;
  }
  for (const HeldTable& held : held_) lookup->versions.push_back(held.has_any() ? held.weight.version() : 0);
  for (size_t b = 0; b < results.size(); ++b) results[b] = recorded(results[b], b);
  of_step_ = std::move(lookup);
  return results;
}

}  // namespace tutti::parallel
