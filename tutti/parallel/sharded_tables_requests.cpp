// What ShardedTables asks of the ranks that hold tables.
#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/ops/indexing/row_runs.h"
#include "tutti/parallel/sharded_tables_parts.h"
#include "tutti/tensor/host_read.h"

namespace tutti::parallel {

std::unique_ptr<ShardedTables::Lookup> ShardedTables::checked(std::span<const TableBatch> batches) const {
  TUTTI_CHECK(HostReads::current() == nullptr,
              "ShardedTables: a compiled function would look up the batches of its trace in every call; call look_up() "
              "outside of compile(), and give its results to the compiled function");
  TUTTI_CHECK(has_values(), "ShardedTables: the tables have no values yet; call initialize() or load()");
  auto lookup = std::make_unique<Lookup>();
  lookup->is_of_step = is_training() && is_grad_enabled();
  TUTTI_CHECK(!lookup->is_of_step || batches.size() == local_.size(),
              "ShardedTables: {} batches in training mode; expected one for each of the {} virtual shards of rank {}",
              batches.size(), local_.size(), rank());
  std::vector<int64_t> rows, columns;
  for (const nn::TableConfig& t : tables_) {
    rows.push_back(t.rows);
    columns.push_back(t.columns);
  }
  for (size_t b = 0; b < batches.size(); ++b) {
    TUTTI_CHECK(batches[b].features.empty(),
                "ShardedTables: batch {} names the tables of {} features; they are options of the module", b,
                batches[b].features.size());
    const Tensor& weights = batches[b].per_sample_weights;
    TUTTI_CHECK(!weights.defined() || !requires_grad(weights),
                "ShardedTables: the per_sample_weights of batch {} want a gradient, which other ranks would have to "
                "compute; detach() them, or use nn::TableBatchedEmbeddingBags",
                b);
    TUTTI_CHECK(weights.defined() == batches[0].per_sample_weights.defined(),
                "ShardedTables: batch {} {} per_sample_weights, and batch 0 {}; give all batches of a call weights, or "
                "none",
                b, weights.defined() ? "has" : "has no", weights.defined() ? "has none" : "has some");
    TableBatch batch = batches[b];
    batch.features = options_.features;
    lookup->batches.push_back(checked_batch("ShardedTables::look_up", batch, rows, columns, options_.batch));
  }
  return lookup;
}

// The entries of each table by Route::rows, batch by batch and feature by feature, as places among the rows that are
// needed of it, which the lookup gets; -1 where they are out of range.
std::vector<std::vector<int64_t>> ShardedTables::places_of_rows(Lookup& lookup) const {
  lookup.needed.resize(tables_.size());
  std::vector<std::vector<int64_t>> places(tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (route_of(t) != Route::rows) continue;
    BagList all;
    for (const CheckedBatch& batch : lookup.batches)
      for (const size_t f : features_[t]) all.add(batch, 0, f, 0, nullptr);
    const facets::RowRuns runs(Tensor::of<int64_t>(all.indices), tables_[t].rows, -1);
    places[t].assign(all.indices.size(), -1);
    lookup.needed[t].resize(static_cast<size_t>(runs.count()));
    for (int64_t run = 0; run < runs.count(); ++run) {
      lookup.needed[t][static_cast<size_t>(run)] = runs.row(run);
      for (const uint64_t* key = runs.first(run); key != runs.first(run + 1); ++key)
        places[t][static_cast<size_t>(runs.entry_of(*key))] = run;
    }
  }
  return places;
}

// Fills what the lookup needs of this rank, and writes what it asks of each rank.
std::vector<Tensor> ShardedTables::requests(Lookup& lookup) const {
  const std::vector<CheckedBatch>& batches = lookup.batches;
  std::vector<BagList> asked(static_cast<size_t>(ranks()));
  each_feature(
      batches.size(), [&](size_t t) { return route_of(t) == Route::pooled; },
      [&](size_t b, size_t t, size_t f) {
        for (const TablePart& part : plan_[t].parts)
          asked[static_cast<size_t>(part.rank)].add(batches[b], static_cast<int64_t>(b), f, static_cast<int64_t>(t),
                                                    nullptr);
      });
  const std::vector<std::vector<int64_t>> places = places_of_rows(lookup);
  std::vector<int64_t> next(tables_.size(), 0);  // entry of each such table
  each_feature(
      batches.size(), [&](size_t t) { return route_of(t) != Route::pooled; },
      [&](size_t b, size_t t, size_t f) {
        const bool whole = route_of(t) == Route::here;
        lookup.here.add(batches[b], static_cast<int64_t>(b), f, static_cast<int64_t>(t),
                        whole ? nullptr : places[t].data() + next[t]);
        next[t] += lookup.here.pieces.back().entries;
      });
  std::vector<Tensor> parcels;
  for (int r = 0; r < ranks(); ++r) {
    ParcelWriter writer;
    asked[static_cast<size_t>(r)].write(writer);
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TablePart* const part = route_of(t) == Route::rows ? part_on(t, r) : nullptr;
      if (part == nullptr) continue;
      const std::vector<int64_t>& rows = lookup.needed[t];
      const auto begin = std::lower_bound(rows.begin(), rows.end(), part->row_begin),
                 end = std::lower_bound(begin, rows.end(), part->row_end);
      writer.put<int64_t>(end - begin);
      writer.put(rows.data() + (begin - rows.begin()), end - begin);
    }
    parcels.push_back(writer.take());
  }
  for (CheckedBatch& batch : lookup.batches) batch.release();
  return parcels;
}

void ShardedTables::send_indices(std::span<const TableBatch> batches) {
  std::unique_ptr<Lookup> lookup;
  ParcelExchange sending = exchange("ShardedTables::look_up", [&]() -> Parcels {
    TUTTI_CHECK(!sent_,
                "ShardedTables::send_indices: indices were sent before, and look_up() has not taken them; call it, or "
                "abandon_step()");
    lookup = checked(batches);
    const NoGradScope no_grad;
    const int64_t weighted = batches.empty() ? ParcelFact::kAny : batches[0].per_sample_weights.defined();
    return {requests(*lookup),
            {{"whether lookups are of a step", lookup->is_of_step},
             {"whether batches have per_sample_weights", weighted},
             {"the number of steps taken", steps_},
             {"the number of what initialize() and load() were given", values_}}};
  });
  lookup->requests.emplace(std::move(sending));
  sent_ = std::move(lookup);
}

}  // namespace tutti::parallel
