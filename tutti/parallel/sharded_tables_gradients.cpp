// What ShardedTables::step() sends and receives.
#include <algorithm>
#include <numeric>

#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/sharded_tables_parts.h"

namespace tutti::parallel {
namespace {

// The maximal nodes of the tree over shards that are in `shards`, which ascend.
std::vector<comm::ShardNode> nodes_of(const std::vector<int64_t>& shards) {
  std::vector<comm::ShardNode> nodes;
  for (const int64_t s : shards) {
    nodes.push_back({s, s + 1});
    while (nodes.size() > 1) {
      comm::ShardNode &left = nodes[nodes.size() - 2], &right = nodes.back();
      const int64_t count = left.end - left.begin;
      if (right.end - right.begin != count || right.begin != left.end || left.begin % (2 * count) != 0) break;
      left.end = right.end;
      nodes.pop_back();
    }
  }
  return nodes;
}

// Writes the rows whose numbers are within the part, and its columns of their gradients.
void write_part(const RowGradients& all, const TablePart& part, ParcelWriter& to) {
  const int64_t* const rows = all.rows.data<int64_t>();
  const int64_t first = std::lower_bound(rows, rows + all.rows.numel(), part.row_begin) - rows,
                count = std::lower_bound(rows + first, rows + all.rows.numel(), part.row_end) - rows - first,
                width = all.values.extent(1), columns = part.column_end - part.column_begin;
  to.put(count);
  to.put(rows + first, count);
  char* const block = to.room(count * columns * static_cast<int64_t>(sizeof(float)));
  take_block(static_cast<const char*>(all.values.raw_data()), {count, first * width, width, columns}, part.column_begin,
             part.column_end, sizeof(float), block);
}

}  // namespace

TableUse use_of_rows(const Tensor& rows, const Tensor& values) {
  const int64_t n = rows.numel();
  const Tensor offsets = Tensor::empty({n + 1}, DType::i64);
  std::iota(offsets.data<int64_t>(), offsets.data<int64_t>() + n + 1, int64_t{0});
  return {values, {.indices = rows, .offsets = offsets, .features = {0}, .bags = {n}}};
}

TableUse use_of_pieces(const BagList& list, size_t begin, size_t end, int64_t width, TablePooling pooling) {
  TableUse use{{}, list.batch(begin, end)};
  std::fill(use.batch.features.begin(), use.batch.features.end(), 0);
  int64_t rows = 0;
  for (size_t i = begin; i < end; ++i) rows += BagList::rows_of(list.pieces[i], pooling);
  use.grad = pooling == TablePooling::none ? Tensor::empty({rows, width}, DType::f32)
                                           : Tensor::empty({rows * width}, DType::f32);
  return use;
}

size_t end_of_table(const BagList& list, size_t begin) {
  size_t end = begin;
  while (end < list.pieces.size() && list.pieces[end].batch == list.pieces[begin].batch &&
         list.pieces[end].table == list.pieces[begin].table)
    ++end;
  return end;
}

// What each shard looked up of the tables that other ranks do not pool, at its number.
std::vector<TableUse> ShardedTables::own_uses() const {
  std::vector<TableUse> uses(static_cast<size_t>(count_));
  const Lookup& lookup = *of_step_;
  constexpr int64_t kFloat = sizeof(float);
  for (size_t b = 0; b < lookup.own.size(); ++b) {
    const Tensor& gradient = reached_->gradients[b];
    if (!gradient.defined()) continue;
    TableUse& use = uses[static_cast<size_t>(local_[b])] = {gradient, lookup.own[b]};
    if (lookup.own_is_all) continue;
    int64_t elements = 0;
    const auto each_own = [&](auto visit) {
      for (size_t f = 0; f < options_.features.size(); ++f)
        if (route_of(static_cast<size_t>(options_.features[f])) != Route::pooled) visit(lookup.batches[b].rows[f]);
    };
    each_own([&](const CheckedBatch::Rows& rows) { elements += rows.count * rows.width; });
    const int64_t width = tables_[static_cast<size_t>(use.batch.features[0])].columns;
    use.grad = options_.batch.pooling == TablePooling::none
                   ? Tensor::empty({use.batch.indices.numel(), width}, DType::f32)
                   : Tensor::empty({elements}, DType::f32);
    char* to = static_cast<char*>(use.grad.raw_data());
    each_own([&](const CheckedBatch::Rows& rows) {
      take_block(static_cast<const char*>(gradient.raw_data()), rows, 0, rows.width, kFloat, to);
      to += rows.count * rows.width * kFloat;
    });
  }
  return uses;
}

// The gradients of this rank's shards, a parcel for each rank: those of bags that it pools, and sums of rows.
std::vector<Tensor> ShardedTables::gradients_by_rank() const {
  const Lookup& lookup = *of_step_;
  const std::vector<Tensor>& gradients = reached_->gradients;
  constexpr int64_t kFloat = sizeof(float);
  std::vector<int64_t> shards;  // of the batches that backward() reached
  std::vector<ParcelWriter> parcels(static_cast<size_t>(ranks()));
  const auto is_pooled = [&](size_t t) { return route_in(lookup, t) == Route::pooled; };
  // Calls visit(b, f, part, elements) for what the ranks with parts of pooled tables get.
  const auto each_block = [&](auto visit) {
    each_feature(lookup.batches.size(), is_pooled, [&](size_t b, size_t t, size_t f) {
      if (!gradients[b].defined()) return;
      for (const TablePart& part : plan_[t].parts)
        visit(b, f, part, lookup.batches[b].rows[f].count * (part.column_end - part.column_begin));
    });
  };
  std::vector<int64_t> sizes(parcels.size(), 0);
  each_block([&](size_t, size_t, const TablePart& part, int64_t elements) {
    sizes[static_cast<size_t>(part.rank)] += elements * kFloat;
  });
  for (size_t r = 0; r < parcels.size(); ++r)
    parcels[r].reserve(sizes[r] + std::ssize(lookup.batches) * static_cast<int64_t>(sizeof(int64_t)));
  for (size_t b = 0; b < lookup.batches.size(); ++b) {
    const bool reached = gradients[b].defined();
    if (reached) shards.push_back(local_[b]);
    for (ParcelWriter& parcel : parcels) parcel.put<int64_t>(reached ? local_[b] : -1);
  }
  each_block([&](size_t b, size_t f, const TablePart& part, int64_t elements) {
    take_block(static_cast<const char*>(gradients[b].raw_data()), lookup.batches[b].rows[f], part.column_begin,
               part.column_end, kFloat, parcels[static_cast<size_t>(part.rank)].room(elements * kFloat));
  });
  const std::vector<TableUse> uses = own_uses();
  std::vector<int64_t> columns;
  for (const nn::TableConfig& table : tables_) columns.push_back(table.columns);
  std::sort(shards.begin(), shards.end());
  const std::vector<comm::ShardNode> nodes = nodes_of(shards);
  TableBatchOptions options = options_.batch;
  options.bounds = BoundsCheck::ignore;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Route route = route_in(lookup, t);
    if (route == Route::pooled || features_[t].empty() || ranks() == 1) continue;
    const int64_t rows = route == Route::rows ? std::ssize(lookup.needed[t]) : tables_[t].rows;
    const TableOfBatch which{static_cast<int64_t>(t), columns, rows};
    std::vector<RowGradients> sums;
    for (const comm::ShardNode& node : nodes) {
      const std::span<const TableUse> of_node(uses.data() + node.begin, static_cast<size_t>(node.end - node.begin));
      sums.push_back(table_batched_row_gradients(of_node, which, options).trimmed());
      RowGradients& sum = sums.back();
      sum = {to_contiguous(sum.rows), to_contiguous(sum.values), {}};
      if (route == Route::here) continue;
      int64_t* const row = sum.rows.data<int64_t>();
      for (int64_t i = 0; i < sum.rows.numel(); ++i) row[i] = lookup.needed[t][static_cast<size_t>(row[i])];
    }
    for (int r = 0; r < ranks(); ++r) {
      const TablePart* const part = part_on(t, r);
      if (part == nullptr) continue;
      ParcelWriter& parcel = parcels[static_cast<size_t>(r)];
      parcel.put(static_cast<int64_t>(nodes.size()));
      for (size_t n = 0; n < nodes.size(); ++n) {
        parcel.put(nodes[n].begin);
        write_part(sums[n], *part, parcel);
      }
    }
  }
  std::vector<Tensor> bytes;
  for (ParcelWriter& parcel : parcels) bytes.push_back(parcel.take());
  return bytes;
}

ShardedTables::Gradients ShardedTables::received_gradients(std::span<const std::string_view> parcels) const {
  Gradients received{.pooled = std::vector<std::vector<Gradients::Run>>(tables_.size()),
                     .rows = {tables_.size(), std::vector<TableUse>(static_cast<size_t>(count_))}};
  for (int r = 0; r < ranks(); ++r) {
    ParcelReader reader("ShardedTables::step", parcels[static_cast<size_t>(r)]);
    std::vector<int64_t> shards(shards_of(count_, r, ranks(), schedule_).size());
    reader.get(shards.data(), std::ssize(shards));
    for (const int64_t shard : shards) {
      TUTTI_CHECK_ENV(shard >= -1 && shard < count_, "ShardedTables::step: rank {} has sent shard {} of {}", r, shard,
                      count_);
      received.any = received.any || shard >= 0;
    }
    const BagList& list = of_step_->received[static_cast<size_t>(r)];
    for (size_t begin = 0, end = 0; begin < list.pieces.size(); begin = end) {
      end = end_of_table(list, begin);
      const auto b = static_cast<size_t>(list.pieces[begin].batch), t = static_cast<size_t>(list.pieces[begin].table);
      TUTTI_CHECK_ENV(b < shards.size(), "ShardedTables::step: rank {} has sent batch {} of {}", r, b, shards.size());
      if (shards[b] < 0) continue;
      Gradients::Run run{static_cast<size_t>(r), begin, end, shards[b], {}};
      for (size_t i = begin; i < end; ++i)
        run.of_pieces.push_back(
            reader.take(BagList::rows_of(list.pieces[i], options_.batch.pooling) * held_[t].columns(), sizeof(float)));
      received.pooled[t].push_back(std::move(run));
    }
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (route_in(*of_step_, t) == Route::pooled || features_[t].empty() || ranks() == 1 || !held_[t].has_any())
        continue;
      const int64_t width = held_[t].columns();
      for (int64_t nodes = reader.get<int64_t>(); nodes > 0; --nodes) {
        const auto first = reader.get<int64_t>();
        const int64_t n = reader.count(static_cast<int64_t>(sizeof(int64_t)));
        const Tensor rows = Tensor::empty({n}, DType::i64), values = Tensor::empty({n, width}, DType::f32);
        reader.get(rows.data<int64_t>(), n);
        reader.get(values.data<float>(), n * width);
        TUTTI_CHECK_ENV(first >= 0 && first < count_, "ShardedTables::step: rank {} has sent shard {} of {}", r, first,
                        count_);
        for (int64_t i = 0; i < n; ++i) {
          int64_t& row = rows.data<int64_t>()[i];
          row -= held_[t].part.row_begin;
          TUTTI_CHECK_ENV(row >= 0 && row < held_[t].rows(), "ShardedTables::step: rank {} has sent row {} of {}", r,
                          row, held_[t].rows());
        }
        received.rows[t][static_cast<size_t>(first)] = use_of_rows(rows, values);
      }
    }
  }
  return received;
}

}  // namespace tutti::parallel
