// Lookups of ShardedTables: answers of the ranks that hold tables, and results put together of them.
#include <algorithm>

#include "tutti/autograd/function.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/parallel/sharded_tables_parts.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::parallel {
namespace {

DType result_dtype(const nn::TableBatchedOptions& options) {
  switch (options.batch.output) {
    case TableOutput::f32:
      return DType::f32;
    case TableOutput::bf16:
      return DType::bf16;
    case TableOutput::f16:
      return DType::f16;
    case TableOutput::as_tables:
      break;
  }
  return options.dtype;
}

int64_t row_nbytes(const Tensor& table) { return table.extent(1) * itemsize(table.dtype()); }

}  // namespace

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

// The results of all bags, those of one piece after those of another, in one dim.
Tensor ShardedTables::look_up_bags(const std::vector<Tensor>& tables, const BagList& bags) const {
  TableBatchOptions options = options_.batch;
  options.bounds = BoundsCheck::ignore;  // who asks has told of them
  const DType dtype = result_dtype(options_);
  const auto flat = [](const Tensor& t) { return t.view_as({t.numel()}, {1}, t.offset()); };
  const auto width = [&](const BagList::Piece& p) { return tables[static_cast<size_t>(p.table)].extent(1); };
  // A call has a table of every number. Those without rows are never looked up.
  std::vector<Tensor> all = tables;
  for (Tensor& table : all)
    if (!table.defined()) table = Tensor::empty({0, 0}, options_.dtype);
  const size_t n = bags.pieces.size();
  std::vector<Tensor> results;
  for (size_t begin = 0, end = 0; begin < n; begin = end) {
    end = n;  // without pooling a call has features of one width
    if (options.pooling == TablePooling::none)
      end = static_cast<size_t>(
          std::find_if(bags.pieces.begin() + static_cast<std::ptrdiff_t>(begin), bags.pieces.end(),
                       [&](const BagList::Piece& p) { return width(p) != width(bags.pieces[begin]); }) -
          bags.pieces.begin());
    results.push_back(flat(table_batched_embedding_bags(all, bags.batch(begin, end), options).values));
  }
  if (results.size() == 1) return results[0];
  int64_t total = 0;
  for (const Tensor& r : results) total += r.numel();
  const Tensor joined = Tensor::empty({total}, dtype);
  char* to = static_cast<char*>(joined.raw_data());
  for (const Tensor& r : results) {
    if (r.numel() > 0) std::memcpy(to, r.raw_data(), static_cast<size_t>(r.nbytes()));
    to += r.nbytes();
  }
  return joined;
}

// Pools the bags that ranks have sent, and copies the rows that they need.
std::vector<Tensor> ShardedTables::answers(Lookup& lookup, std::span<const std::string_view> parcels) const {
  std::vector<Tensor> tables;
  for (size_t t = 0; t < tables_.size(); ++t)
    tables.push_back(route_of(t) == Route::pooled ? held_[t].weight : Tensor());
  BagList all;
  std::vector<ParcelReader> readers;
  for (const std::string_view parcel : parcels) {
    ParcelReader& reader = readers.emplace_back("ShardedTables::look_up", parcel);
    lookup.received.push_back(BagList::read(reader, static_cast<int64_t>(tables_.size())));
    for (const BagList::Piece& p : lookup.received.back().pieces)
      TUTTI_CHECK_ENV(tables[static_cast<size_t>(p.table)].defined(),
                      "ShardedTables::look_up: a rank has sent bags of table {}, which is not here", p.table);
    all.append(lookup.received.back());
  }
  const Tensor values = look_up_bags(tables, all);
  const char* next = all.pieces.empty() ? nullptr : static_cast<const char*>(values.raw_data());
  std::vector<Tensor> results;
  for (size_t r = 0; r < readers.size(); ++r) {
    ParcelWriter writer;
    int64_t elements = 0;
    for (const BagList::Piece& p : lookup.received[r].pieces)
      elements += BagList::rows_of(p, options_.batch.pooling) * tables[static_cast<size_t>(p.table)].extent(1);
    const int64_t nbytes = elements * itemsize(result_dtype(options_));
    writer.put(next, nbytes);
    next += nbytes;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TablePart* const part = route_of(t) == Route::rows ? part_on(t, rank()) : nullptr;
      if (part == nullptr) continue;
      const Tensor& table = held_[t].weight;
      std::vector<int64_t> rows(static_cast<size_t>(readers[r].count(sizeof(int64_t))));
      readers[r].get(rows.data(), static_cast<int64_t>(rows.size()));
      char* to = writer.room(static_cast<int64_t>(rows.size()) * row_nbytes(table));
      for (const int64_t row : rows) {
        TUTTI_CHECK_ENV(row >= part->row_begin && row < part->row_end,
                        "ShardedTables::look_up: a rank asks for row {} of table '{}'; here are rows {} to {}", row,
                        tables_[t].name, part->row_begin, part->row_end - 1);
        std::memcpy(to, static_cast<const char*>(table.raw_data()) + (row - part->row_begin) * row_nbytes(table),
                    static_cast<size_t>(row_nbytes(table)));
        to += row_nbytes(table);
      }
    }
    results.push_back(writer.take());
  }
  return results;
}

// The results of this rank's batches.
std::vector<Tensor> ShardedTables::assembled(const Lookup& lookup, std::span<const std::string_view> parcels) const {
  const int64_t size = itemsize(result_dtype(options_));
  std::vector<Tensor> results;
  for (const CheckedBatch& batch : lookup.batches)
    results.push_back(Tensor::empty(concrete(batch.result), result_dtype(options_)));
  // Columns [begin, end) of the results of a feature of table t are the next in a block.
  const auto place = [&](size_t b, size_t f, int64_t begin, int64_t end, const char* block) {
    const CheckedBatch::Rows& rows = lookup.batches[b].rows[f];
    place_block(static_cast<char*>(results[b].raw_data()), rows, begin, end, size, block);
    return rows.count * (end - begin) * size;
  };
  std::vector<Tensor> tables(tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (route_of(t) == Route::here) tables[t] = held_[t].weight;
    if (route_of(t) == Route::rows)
      tables[t] = Tensor::empty({static_cast<int64_t>(lookup.needed[t].size()), tables_[t].columns}, options_.dtype);
  }
  std::vector<int64_t> filled(tables_.size(), 0);
  for (int r = 0; r < ranks(); ++r) {
    ParcelReader reader("ShardedTables::look_up", parcels[static_cast<size_t>(r)]);
    each_feature(
        lookup.batches.size(), [&](size_t t) { return route_of(t) == Route::pooled && part_on(t, r) != nullptr; },
        [&](size_t b, size_t t, size_t f) {
          const TablePart& part = *part_on(t, r);
          const int64_t count = lookup.batches[b].rows[f].count;
          place(b, f, part.column_begin, part.column_end,
                reader.take(count, (part.column_end - part.column_begin) * size).data());
        });
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TablePart* const part = route_of(t) == Route::rows ? part_on(t, r) : nullptr;
      if (part == nullptr) continue;
      const std::vector<int64_t>& rows = lookup.needed[t];
      const int64_t count = std::lower_bound(rows.begin(), rows.end(), part->row_end) -
                            std::lower_bound(rows.begin(), rows.end(), part->row_begin);
      const std::string_view bytes = reader.take(count, row_nbytes(tables[t]));
      if (!bytes.empty())
        std::memcpy(static_cast<char*>(tables[t].raw_data()) + filled[t] * row_nbytes(tables[t]), bytes.data(),
                    bytes.size());
      filled[t] += count;
    }
  }
  const Tensor here = look_up_bags(tables, lookup.here);
  const char* block = lookup.here.pieces.empty() ? nullptr : static_cast<const char*>(here.raw_data());
  each_feature(
      lookup.batches.size(), [&](size_t t) { return route_of(t) != Route::pooled; },
      [&](size_t b, size_t t, size_t f) { block += place(b, f, 0, tables_[t].columns, block); });
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
