// What ShardedTables asks of the ranks that hold tables.
#include <algorithm>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"
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
    TUTTI_CHECK(weights.defined() == batches[0].per_sample_weights.defined(),
                "ShardedTables: batch {} {} per_sample_weights, and batch 0 {}; give all batches of a call weights, or "
                "none",
                b, weights.defined() ? "has" : "has no", weights.defined() ? "has none" : "has some");
    const bool wants = weights.defined() && is_grad_enabled() && requires_grad(weights);
    if (b == 0) lookup->wants_gradients = wants;
    TUTTI_CHECK(wants == lookup->wants_gradients,
                "ShardedTables: the per_sample_weights of batch {} want {} gradient, and those of batch 0 {}; give all "
                "batches of a call weights that want gradients, or detach() them",
                b, wants ? "a" : "no", wants ? "do not" : "do");
    TableBatch batch = batches[b];
    batch.features = options_.features;
    if (wants) {
      lookup->weights.push_back(clone(weights));  // the caller may change them
      batch.per_sample_weights = detach(lookup->weights.back());
    }
    lookup->batches.push_back(checked_batch("ShardedTables::look_up", batch, rows, columns, options_.batch));
  }
  return lookup;
}

// The entries of each table by Route::rows, batch by batch and feature by feature, as places among the rows that are
// needed of it, which the lookup gets; -1 where they are out of range.
std::vector<std::vector<int64_t>> ShardedTables::places_of_rows(Lookup& lookup) const {
  std::vector<std::vector<int64_t>> places(tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (route_in(lookup, t) != Route::rows) continue;
    BagList all;
    for (const CheckedBatch& batch : lookup.batches)
      for (const size_t f : features_[t]) all.add(batch, 0, f, 0);
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

void ShardedTables::make_own_batches(Lookup& lookup) const {
  lookup.needed.resize(tables_.size());
  std::vector<size_t> features;
  for (size_t f = 0; f < options_.features.size(); ++f)
    if (route_in(lookup, static_cast<size_t>(options_.features[f])) != Route::pooled) features.push_back(f);
  if (features.empty()) return;
  lookup.own_is_all = features.size() == options_.features.size();
  const std::vector<std::vector<int64_t>> places = places_of_rows(lookup);
  std::vector<int64_t> next(tables_.size(), 0);  // entry of each table by Route::rows
  for (const CheckedBatch& batch : lookup.batches) {
    const facets::Lookups& all = batch.lookups;
    int64_t bags = 0, entries = 0;
    for (const size_t f : features) {
      bags += all.features[f].bags;
      entries += all.entries(f);
    }
    TableBatch& own = lookup.own.emplace_back();
    own.offsets = Tensor::empty({bags + 1}, DType::i64);
    own.indices = Tensor::empty({entries}, DType::i64);
    if (batch.weights.defined()) own.per_sample_weights = Tensor::empty({entries}, DType::f32);
    int64_t *offset = own.offsets.data<int64_t>(), *index = own.indices.data<int64_t>();
    int64_t entry = 0;
    *offset++ = 0;
    for (const size_t f : features) {
      const facets::FeatureBags& of_feature = all.features[f];
      const auto t = static_cast<size_t>(of_feature.table);
      const int64_t* const from = all.offsets.data() + of_feature.first_bag;
      const int64_t first = from[0], count = all.entries(f);
      own.features.push_back(of_feature.table);
      if (!lookup.own_is_all || !all.equal_bags) own.bags.push_back(of_feature.bags);
      for (int64_t b = 1; b <= of_feature.bags; ++b) *offset++ = from[b] - first + entry;
      if (route_in(lookup, t) == Route::rows)
        std::copy_n(places[t].data() + std::exchange(next[t], next[t] + count), count, index + entry);
      else if (all.indices.dtype() == DType::i64)
        std::copy_n(all.indices.data<int64_t>() + first, count, index + entry);
      else std::copy_n(all.indices.data<int32_t>() + first, count, index + entry);
      if (batch.weights.defined())
        std::copy_n(batch.weights.data<float>() + first, count, own.per_sample_weights.data<float>() + entry);
      entry += count;
    }
  }
}

// Fills what the lookup needs of this rank, and writes what it asks of each rank.
std::vector<Tensor> ShardedTables::requests(Lookup& lookup) const {
  const std::vector<CheckedBatch>& batches = lookup.batches;
  std::vector<BagList> asked(static_cast<size_t>(ranks()));
  each_feature(
      batches.size(), [&](size_t t) { return route_in(lookup, t) == Route::pooled; },
      [&](size_t b, size_t t, size_t f) {
        for (const TablePart& part : plan_[t].parts)
          asked[static_cast<size_t>(part.rank)].add(batches[b], static_cast<int64_t>(b), f, static_cast<int64_t>(t));
      });
  make_own_batches(lookup);
  std::vector<Tensor> parcels;
  for (int r = 0; r < ranks(); ++r) {
    ParcelWriter writer;
    asked[static_cast<size_t>(r)].write(writer);
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TablePart* const part = route_of(t) == Route::here ? nullptr : part_on(t, r);
      if (part == nullptr) continue;
      const std::vector<int64_t>& rows = lookup.needed[t];  // none of a table that is pooled
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
    const int64_t weights =
        batches.empty() ? ParcelFact::kAny : batches[0].per_sample_weights.defined() + lookup->wants_gradients;
    return {requests(*lookup),
            {{"whether lookups are of a step", lookup->is_of_step},
             {"whether batches have per_sample_weights (1), which want gradients (2),", weights},
             {"the number of steps taken", steps_},
             {"the number of what initialize() and load() were given", values_}}};
  });
  lookup->requests.emplace(std::move(sending));
  sent_ = std::move(lookup);
}

}  // namespace tutti::parallel
