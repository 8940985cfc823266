// What ShardedTables::step() sends and receives.
#include <algorithm>
#include <numeric>

#include "tutti/parallel/sharded_lookup.h"

namespace tutti::parallel {
namespace {

struct ShardNode {
  int64_t first, count;
};
// The maximal nodes of the tree over shards that are in `shards`, which ascend.
std::vector<ShardNode> nodes_of(const std::vector<int64_t>& shards) {
  std::vector<ShardNode> nodes;
  for (const int64_t s : shards) {
    nodes.push_back({s, 1});
    while (nodes.size() > 1) {
      ShardNode &left = nodes[nodes.size() - 2], &right = nodes.back();
      const bool siblings =
          left.count == right.count && left.first % (2 * left.count) == 0 && right.first == left.first + left.count;
      if (!siblings) break;
      left.count *= 2;
      nodes.pop_back();
    }
  }
  return nodes;
}

// Rows whose numbers are within the part, counted from its first row.
RowGradients within(const RowGradients& all, int64_t begin, int64_t end) {
  const int64_t* const rows = all.rows.data<int64_t>();
  const int64_t first = std::lower_bound(rows, rows + all.rows.numel(), begin) - rows,
                last = std::lower_bound(rows, rows + all.rows.numel(), end) - rows, width = all.values.extent(1);
  return {all.rows.view_as({last - first}, {1}, all.rows.offset() + first),
          all.values.view_as({last - first, width}, {width, 1}, all.values.offset() + first * width),
          {}};
}

}  // namespace

TableUse use_of_rows(const Tensor& rows, const Tensor& values) {
  const int64_t n = rows.numel();
  const Tensor offsets = Tensor::empty({n + 1}, DType::i64);
  std::iota(offsets.data<int64_t>(), offsets.data<int64_t>() + n + 1, int64_t{0});
  return {values, {.indices = rows, .offsets = offsets, .features = {0}, .bags = {n}}};
}

TableUse use_of_pieces(const BagList& list, size_t begin, size_t end, std::span<const Tensor> gradients, int64_t width,
                       TablePooling pooling) {
  TableUse use{{}, list.batch(begin, end)};
  std::fill(use.batch.features.begin(), use.batch.features.end(), 0);
  int64_t elements = 0;
  for (const Tensor& g : gradients) elements += g.numel();
  use.grad = pooling == TablePooling::none ? Tensor::empty({use.batch.indices.numel(), width}, DType::f32)
                                           : Tensor::empty({elements}, DType::f32);
  float* to = use.grad.data<float>();
  for (const Tensor& g : gradients) to = std::copy_n(g.data<float>(), g.numel(), to);
  return use;
}

size_t end_of_table(const BagList& list, size_t begin) {
  size_t end = begin;
  while (end < list.pieces.size() && list.pieces[end].batch == list.pieces[begin].batch &&
         list.pieces[end].table == list.pieces[begin].table)
    ++end;
  return end;
}

// The gradients of this rank's shards, a parcel for each rank: those of bags that it pools, and sums of rows.
std::vector<Tensor> ShardedTables::gradients_by_rank() const {
  const TablePooling pooling = options_.batch.pooling;
  const Lookup& lookup = *of_step_;
  const std::vector<Tensor>& gradients = reached_->gradients;
  std::vector<int64_t> shards;  // of the batches that backward() reached
  std::vector<ParcelWriter> parcels(static_cast<size_t>(ranks()));
  for (size_t b = 0; b < lookup.batches.size(); ++b) {
    const bool reached = gradients[b].defined();
    if (reached) shards.push_back(local_[b]);
    for (ParcelWriter& parcel : parcels) parcel.put<int64_t>(reached ? local_[b] : -1);
  }
  const auto block = [&](size_t b, size_t f, int64_t begin, int64_t end, char* to) {
    copy_block(BlockCopy::from_result, static_cast<char*>(gradients[b].raw_data()),
               lookup.batches[b].rows_of(f, pooling), begin, end, sizeof(float), to);
  };
  each_feature(
      lookup.batches.size(), [&](size_t t) { return route_of(t) == Route::pooled; },
      [&](size_t b, size_t t, size_t f) {
        if (!gradients[b].defined()) return;
        for (const TablePart& part : plan_[t].parts) {
          const int64_t elements = lookup.batches[b].rows_of(f, pooling).count * (part.column_end - part.column_begin);
          block(b, f, part.column_begin, part.column_end,
                parcels[static_cast<size_t>(part.rank)].room(elements * static_cast<int64_t>(sizeof(float))));
        }
      });
  // What each shard looked up of the other tables, by table and shard, has sums of its own.
  std::vector<std::vector<TableUse>> uses(tables_.size(), std::vector<TableUse>(static_cast<size_t>(count_)));
  std::vector<Tensor> blocks;
  each_feature(
      lookup.batches.size(), [&](size_t t) { return route_of(t) != Route::pooled; },
      [&](size_t b, size_t t, size_t f) {
        Tensor& of_piece = blocks.emplace_back();
        if (!gradients[b].defined()) return;
        of_piece = Tensor::empty({lookup.batches[b].rows_of(f, pooling).count * tables_[t].columns}, DType::f32);
        block(b, f, 0, tables_[t].columns, static_cast<char*>(of_piece.raw_data()));
      });
  for (size_t begin = 0, end = 0; begin < lookup.here.pieces.size(); begin = end) {
    end = end_of_table(lookup.here, begin);
    const auto [b, t, bags, entries] = lookup.here.pieces[begin];
    if (!gradients[static_cast<size_t>(b)].defined()) continue;
    uses[static_cast<size_t>(t)][static_cast<size_t>(local_[static_cast<size_t>(b)])] =
        use_of_pieces(lookup.here, begin, end, std::span(blocks).subspan(begin, end - begin),
                      tables_[static_cast<size_t>(t)].columns, pooling);
  }
  std::sort(shards.begin(), shards.end());
  const std::vector<ShardNode> nodes = nodes_of(shards);
  TableBatchOptions options = options_.batch;
  options.bounds = BoundsCheck::ignore;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Route route = route_of(t);
    if (route == Route::pooled || features_[t].empty()) continue;
    const int64_t rows = route == Route::rows ? static_cast<int64_t>(lookup.needed[t].size()) : tables_[t].rows;
    const TableOfBatch which{0, {tables_[t].columns}, rows};
    std::vector<RowGradients> sums;
    for (const ShardNode& node : nodes) {
      const std::span<const TableUse> of_node(uses[t].data() + node.first, static_cast<size_t>(node.count));
      sums.push_back(table_batched_row_gradients(of_node, which, options).trimmed());
      RowGradients& sum = sums.back();
      sum = {to_contiguous(sum.rows), to_contiguous(sum.values), {}};
      if (route == Route::here) continue;
      int64_t* const row = sum.rows.data<int64_t>();
      for (int64_t i = 0; i < sum.rows.numel(); ++i) row[i] = lookup.needed[t][static_cast<size_t>(row[i])];
    }
    for (int r = 0; r < ranks(); ++r) {
      const TablePart* const part = plan_[t].parts.empty() ? nullptr : part_on(t, r);
      if (part == nullptr) continue;
      ParcelWriter& parcel = parcels[static_cast<size_t>(r)];
      parcel.put(static_cast<int64_t>(nodes.size()));
      for (size_t n = 0; n < nodes.size(); ++n) {
        const RowGradients mine = within(sums[n], part->row_begin, part->row_end);
        parcel.put(nodes[n].first);
        parcel.put(mine.rows.numel());
        parcel.put(mine.rows.data<int64_t>(), mine.rows.numel());
        parcel.put(mine.values.data<float>(), mine.values.numel());
      }
    }
  }
  std::vector<Tensor> bytes;
  for (ParcelWriter& parcel : parcels) bytes.push_back(parcel.take());
  return bytes;
}

ShardedTables::Gradients ShardedTables::received_gradients(std::span<const std::string_view> parcels) const {
  Gradients received;
  received.rows.assign(tables_.size(), std::vector<TableUse>(static_cast<size_t>(count_)));
  for (int r = 0; r < ranks(); ++r) {
    ParcelReader reader("ShardedTables::step", parcels[static_cast<size_t>(r)]);
    const BagList& list = of_step_->received[static_cast<size_t>(r)];
    std::vector<Gradients::Batch>& batches = received.batches.emplace_back();
    const size_t shards = shards_of(count_, r, ranks(), schedule_).size();
    for (size_t b = 0; b < shards; ++b) batches.push_back({reader.get<int64_t>(), {}});
    const auto is_shard = [&](int64_t shard) { return shard >= 0 && shard < count_; };
    for (const Gradients::Batch& batch : batches)
      TUTTI_CHECK_ENV(batch.shard == -1 || is_shard(batch.shard),
                      "ShardedTables::step: rank {} has sent shard {} of {}", r, batch.shard, count_);
    for (const BagList::Piece& p : list.pieces) {
      TUTTI_CHECK_ENV(p.batch < static_cast<int64_t>(batches.size()), "ShardedTables::step: rank {} has sent batch {}",
                      r, p.batch);
      Gradients::Batch& batch = batches[static_cast<size_t>(p.batch)];
      Tensor& gradient = batch.of_pieces.emplace_back();
      if (batch.shard < 0) continue;
      gradient = Tensor::empty(
          {BagList::rows_of(p, options_.batch.pooling) * held_[static_cast<size_t>(p.table)].columns()}, DType::f32);
      reader.get(gradient.data<float>(), gradient.numel());
    }
    for (size_t t = 0; t < tables_.size(); ++t) {
      const bool here = !plan_[t].parts.empty() && part_on(t, rank()) != nullptr;
      if (route_of(t) == Route::pooled || features_[t].empty() || !here) continue;
      const int64_t width = tables_[t].columns;
      for (int64_t nodes = reader.get<int64_t>(); nodes > 0; --nodes) {
        const auto first = reader.get<int64_t>();
        const int64_t n = reader.count(static_cast<int64_t>(sizeof(int64_t)));
        const Tensor rows = Tensor::empty({n}, DType::i64), values = Tensor::empty({n, width}, DType::f32);
        reader.get(rows.data<int64_t>(), n);
        reader.get(values.data<float>(), n * width);
        TUTTI_CHECK_ENV(is_shard(first), "ShardedTables::step: rank {} has sent shard {} of {}", r, first, count_);
        for (int64_t i = 0; i < n; ++i) rows.data<int64_t>()[i] -= held_[t].part.row_begin;
        received.rows[t][static_cast<size_t>(first)] = use_of_rows(rows, values);
      }
    }
  }
  return received;
}

}  // namespace tutti::parallel
