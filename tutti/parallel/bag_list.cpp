#include "tutti/parallel/bag_list.h"

#include <algorithm>
#include <numeric>

#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/indexing/bags.h"

namespace tutti::parallel {

CheckedBatch checked_batch(const char* op, const TableBatch& batch, const std::vector<int64_t>& rows,
                           const std::vector<int64_t>& columns, const TableBatchOptions& options) {
  const facets::TableLayout layout = facets::table_layout(op, batch, columns, options.pooling);
  const Tensor* const weights = batch.per_sample_weights.defined() ? &batch.per_sample_weights : nullptr;
  const facets::LookupOperands operands{layout.features, batch.indices, batch.offsets, weights};
  const OpDef named{.name = op};
  const Attrs attrs;
  const OpCall call{named, {}, attrs};
  const bool pooled = options.pooling != TablePooling::none, equal_bags = pooled && layout.elements < 0;
  const SymInt bags = facets::check_lookup_operands(call, operands, options.pooling, equal_bags);
  CheckedBatch checked{facets::read_lookups(call, operands, layout.columns), {}, {}, {}};
  for (const facets::FeatureBags& f : checked.lookups.features) {
    const int64_t first = checked.lookups.offsets[static_cast<size_t>(f.first_bag)],
                  last = checked.lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)];
    checked.rows.push_back(pooled ? CheckedBatch::Rows{f.bags, f.base, f.stride, f.width}
                                  : CheckedBatch::Rows{last - first, first * f.width, f.width, f.width});
  }
  facets::tell_bad_indices(call, facets::find_bad_indices(checked.lookups, rows), options.bounds);
  if (weights) checked.weights = facets::dense_as(*weights, DType::f32);
  if (!pooled) checked.result = {batch.indices.size(0), layout.columns};
  else if (equal_bags) checked.result = {bags, layout.columns};
  else checked.result = {layout.elements};
  return checked;
}

void BagList::add(const Piece& piece) {
  pieces.push_back(piece);
  first_bag.push_back(first_bag.back() + piece.bags);
  first_entry.push_back(first_entry.back() + piece.entries);
}

void BagList::add(const CheckedBatch& batch, int64_t number, size_t feature, int64_t table) {
  const facets::FeatureBags& f = batch.lookups.features[feature];
  const int64_t* const offsets = batch.lookups.offsets.data() + f.first_bag;
  const int64_t first = offsets[0], entries = batch.lookups.entries(feature);
  add({number, table, f.bags, entries});
  for (int64_t b = 0; b < f.bags; ++b) lengths.push_back(offsets[b + 1] - offsets[b]);
  const Tensor& given = batch.lookups.indices;
  if (given.dtype() == DType::i64)
    indices.insert(indices.end(), given.data<int64_t>() + first, given.data<int64_t>() + first + entries);
  else indices.insert(indices.end(), given.data<int32_t>() + first, given.data<int32_t>() + first + entries);
  if (!batch.weights.defined()) return;
  weighted = true;
  weights.insert(weights.end(), batch.weights.data<float>() + first, batch.weights.data<float>() + first + entries);
}

void BagList::append(const BagList& other) {
  if (other.pieces.empty()) return;
  TUTTI_CHECK_ENV(pieces.empty() || weighted == other.weighted,
                  "ShardedTables: some ranks have given per_sample_weights and others have not");
  for (const Piece& piece : other.pieces) add(piece);
  lengths.insert(lengths.end(), other.lengths.begin(), other.lengths.end());
  indices.insert(indices.end(), other.indices.begin(), other.indices.end());
  weights.insert(weights.end(), other.weights.begin(), other.weights.end());
  weighted = other.weighted;
}

void BagList::write(ParcelWriter& to) const {
  to.put(static_cast<int64_t>(pieces.size()));
  to.put(pieces.data(), static_cast<int64_t>(pieces.size()));
  to.put(static_cast<int64_t>(lengths.size()));
  to.put(lengths.data(), static_cast<int64_t>(lengths.size()));
  to.put(static_cast<int64_t>(indices.size()));
  to.put(indices.data(), static_cast<int64_t>(indices.size()));
  to.put(static_cast<int64_t>(weighted));
  to.put(static_cast<int64_t>(weights.size()));
  to.put(weights.data(), static_cast<int64_t>(weights.size()));
}

BagList BagList::read(ParcelReader& from, int64_t tables) {
  BagList list;
  const auto read_into = [&](auto& values) {
    values.resize(static_cast<size_t>(from.count(sizeof(values[0]))));
    from.get(values.data(), static_cast<int64_t>(values.size()));
  };
  std::vector<Piece> pieces;
  read_into(pieces);
  read_into(list.lengths);
  read_into(list.indices);
  list.weighted = from.get<int64_t>() != 0;
  read_into(list.weights);
  const int64_t bags_sent = static_cast<int64_t>(list.lengths.size()),
                entries_sent = static_cast<int64_t>(list.indices.size());
  int64_t bag = 0, entry = 0;
  bool fits = list.weights.size() == (list.weighted ? list.indices.size() : 0);
  for (const Piece& p : pieces) {
    fits = fits && p.batch >= 0 && p.table >= 0 && p.table < tables && p.bags >= 0 && p.bags <= bags_sent - bag &&
           p.entries >= 0 && p.entries <= entries_sent - entry;
    if (!fits) break;
    int64_t left = p.entries;
    for (int64_t b = bag; fits && b < bag + p.bags; ++b) {
      const int64_t length = list.lengths[static_cast<size_t>(b)];
      fits = length >= 0 && length <= left;
      if (fits) left -= length;
    }
    fits = fits && left == 0;
    bag += p.bags;
    entry += p.entries;
    list.add(p);
  }
  TUTTI_CHECK_ENV(fits && bag == bags_sent && entry == entries_sent,
                  "ShardedTables: a rank has sent {} features, {} bags and {} indices that do not belong together",
                  pieces.size(), bags_sent, entries_sent);
  return list;
}

TableBatch BagList::batch(size_t begin, size_t end) const {
  TableBatch batch;
  for (size_t i = begin; i < end; ++i) {
    batch.features.push_back(pieces[i].table);
    batch.bags.push_back(pieces[i].bags);
  }
  const int64_t bag = first_bag[begin], bags = first_bag[end] - bag;
  const int64_t entry = first_entry[begin], entries = first_entry[end] - entry;
  batch.offsets = Tensor::empty({bags + 1}, DType::i64);
  int64_t* const offsets = batch.offsets.data<int64_t>();
  offsets[0] = 0;
  std::partial_sum(lengths.begin() + bag, lengths.begin() + bag + bags, offsets + 1);
  batch.indices = Tensor::empty({entries}, DType::i64);
  std::copy_n(indices.begin() + entry, entries, batch.indices.data<int64_t>());
  if (weighted) {
    batch.per_sample_weights = Tensor::empty({entries}, DType::f32);
    std::copy_n(weights.begin() + entry, entries, batch.per_sample_weights.data<float>());
  }
  return batch;
}

}  // namespace tutti::parallel
