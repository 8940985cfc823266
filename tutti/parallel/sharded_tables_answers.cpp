// What ShardedTables answers the ranks that look up its tables.
#include <algorithm>

#include "tutti/parallel/sharded_tables_parts.h"

namespace tutti::parallel {

DType ShardedTables::result_dtype() const {
  switch (options_.batch.output) {
    case TableOutput::f32:
      return DType::f32;
    case TableOutput::bf16:
      return DType::bf16;
    case TableOutput::f16:
      return DType::f16;
    case TableOutput::as_tables:
      break;
  }
  return options_.dtype;
}

// The results of all bags, those of one piece after those of another, in one dim.
Tensor ShardedTables::pooled_for_others(const BagList& bags) const {
  std::vector<Tensor> tables;
  for (size_t t = 0; t < tables_.size(); ++t)
    tables.push_back(route_of(t) == Route::pooled ? held_[t].weight : Tensor());
  const auto flat = [](const Tensor& t) { return t.view_as({t.numel()}, {1}, t.offset()); };
  const auto width = [&](const BagList::Piece& p) { return tables[static_cast<size_t>(p.table)].extent(1); };
  const size_t n = bags.pieces.size();
  std::vector<Tensor> results;
  for (size_t begin = 0, end = 0; begin < n; begin = end) {
    end = n;  // without pooling a call has features of one width
    if (options_.batch.pooling == TablePooling::none)
      end = static_cast<size_t>(
          std::find_if(bags.pieces.begin() + static_cast<std::ptrdiff_t>(begin), bags.pieces.end(),
                       [&](const BagList::Piece& p) { return width(p) != width(bags.pieces[begin]); }) -
          bags.pieces.begin());
    results.push_back(flat(looked_up(tables, bags.batch(begin, end)).values));
  }
  if (results.size() == 1) return results[0];
  int64_t total = 0;
  for (const Tensor& r : results) total += r.numel();
  const Tensor joined = Tensor::empty({total}, result_dtype());
  char* to = static_cast<char*>(joined.raw_data());
  for (const Tensor& r : results) {
    if (r.numel() > 0) std::memcpy(to, r.raw_data(), static_cast<size_t>(r.nbytes()));
    to += r.nbytes();
  }
  return joined;
}

// Pools the bags that ranks have sent, and copies the rows that they need.
std::vector<Tensor> ShardedTables::answers(Lookup& lookup, std::span<const std::string_view> parcels) const {
  BagList all;
  std::vector<ParcelReader> readers;
  for (const std::string_view parcel : parcels) {
    ParcelReader& reader = readers.emplace_back("ShardedTables::look_up", parcel);
    lookup.received.push_back(BagList::read(reader, static_cast<int64_t>(tables_.size())));
    for (const BagList::Piece& p : lookup.received.back().pieces) {
      const auto t = static_cast<size_t>(p.table);
      TUTTI_CHECK_ENV(route_of(t) == Route::pooled && held_[t].has_any(),
                      "ShardedTables::look_up: a rank has sent bags of table {}, which is not here", p.table);
    }
    all.append(lookup.received.back());
  }
  const Tensor values = pooled_for_others(all);
  const char* next = all.pieces.empty() ? nullptr : static_cast<const char*>(values.raw_data());
  std::vector<Tensor> results;
  for (size_t r = 0; r < readers.size(); ++r) {
    ParcelWriter writer;
    int64_t elements = 0;
    for (const BagList::Piece& p : lookup.received[r].pieces)
      elements += BagList::rows_of(p, options_.batch.pooling) * held_[static_cast<size_t>(p.table)].columns();
    const int64_t nbytes = elements * itemsize(result_dtype());
    writer.put(next, nbytes);
    next += nbytes;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TablePart* const part = route_of(t) == Route::here ? nullptr : part_on(t, rank());
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

}  // namespace tutti::parallel
