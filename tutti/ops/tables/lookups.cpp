#include "tutti/ops/tables/lookups.h"

#include <atomic>
#include <cstdio>
#include <limits>
#include <mutex>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {

std::string IndexReport::to_string() const {
  if (count == 0) return "all indices are in range";
  return fmt::format(
      "{} of the indices {} out of range; the first is {} of feature {}, bag {} (position {}), whose "
      "table has {} rows",
      count, count == 1 ? "is" : "are", value, feature, bag, position, rows);
}

IndexReport IndexReport::of(const Tensor& report) {
  TUTTI_CHECK(report.defined() && report.dtype() == DType::i64 && report.numel() == 6,
              "IndexReport: the report is {}; expected i64 [6], from table_batched_embedding_bags", describe(report));
  const std::vector<int64_t> v = facets::dense_indices(report);
  return {v[0], v[1], v[2], v[3], v[4], v[5]};
}

}  // namespace tutti

namespace tutti::facets {

TableLayout table_layout(const char* op, const TableBatch& batch, const std::vector<int64_t>& columns,
                         TablePooling pooling) {
  const int64_t tables = static_cast<int64_t>(columns.size());
  const size_t features = batch.features.empty() ? columns.size() : batch.features.size();
  TUTTI_CHECK(features > 0, "{}: there is no feature; give at least one table", op);
  TUTTI_CHECK(batch.bags.empty() || batch.bags.size() == features,
              "{}: numbers of bags for {} features; there are {} features", op, batch.bags.size(), features);
  std::vector<int64_t> rows;
  int64_t total = 0, elements = 0, all_bags = 0;
  for (size_t t = 0; t < features; ++t) {
    const int64_t table = batch.features.empty() ? static_cast<int64_t>(t) : batch.features[t];
    TUTTI_CHECK(table >= 0 && table < tables, "{}: feature {} looks up table {}; there are {} tables", op, t, table,
                tables);
    const int64_t width = columns[static_cast<size_t>(table)], bags = batch.bags.empty() ? -1 : batch.bags[t];
    TUTTI_CHECK(batch.bags.empty() || bags >= 0, "{}: feature {} has {} bags; expected 0 or more", op, t, bags);
    TUTTI_CHECK(pooling != TablePooling::none || t == 0 || width == rows[3],
                "{}: without pooling all features have one width; feature 0 has {} columns, feature {} has {}", op,
                rows.empty() ? 0 : rows[3], t, width);
    rows.insert(rows.end(), {table, bags, batch.bags.empty() ? total : elements, width});
    total += width;
    int64_t part = 0;
    TUTTI_CHECK(batch.bags.empty() ||
                    (!__builtin_mul_overflow(bags, width, &part) && !__builtin_add_overflow(elements, part, &elements)),
                "{}: feature {} has {} bags of {} columns, more elements than 64 bits can count", op, t, bags, width);
    TUTTI_CHECK(batch.bags.empty() || !__builtin_add_overflow(all_bags, bags, &all_bags),
                "{}: there are more bags than 64 bits can count", op);
  }
  // Before anything has the size that a wrong number of bags would give it.
  if (!batch.bags.empty() && batch.offsets.defined() && batch.offsets.ndim() == 1)
    TUTTI_CHECK(batch.offsets.size(0) - 1 == all_bags,
                "{}: {} offsets for {} bags; expected the number of all bags + 1", op, batch.offsets.size(0), all_bags);
  return {.features = Tensor::of<int64_t>(rows, {static_cast<int64_t>(features), 4}),
          .columns = pooling == TablePooling::none ? rows[3] : total,
          .elements = batch.bags.empty() || pooling == TablePooling::none ? -1 : elements};
}

SymInt check_lookup_operands(const OpCall& call, const LookupOperands& batch, TablePooling pooling, bool equal_bags) {
  const char* op = call.op.name;
  check_index_dtype(op, batch.indices);
  TUTTI_CHECK(batch.indices.ndim() == 1, "{}: the indices are {}; expected one dim, bag after bag", op,
              describe(batch.indices));
  TUTTI_CHECK(batch.offsets.ndim() == 1 && (batch.offsets.dtype() == DType::i64 || batch.offsets.dtype() == DType::i32),
              "{}: the offsets are {}; expected one dim, i64 or i32", op, describe(batch.offsets));
  TUTTI_CHECK(batch.layout.ndim() == 2 && batch.layout.dtype() == DType::i64 && batch.layout.size(1) == 4,
              "{}: the layout is {}; expected i64 [features, 4]", op, describe(batch.layout));
  if (batch.weights) {
    TUTTI_CHECK(pooling != TablePooling::none, "{}: per_sample_weights weigh the terms of a sum; there is no pooling",
                op);
    TUTTI_CHECK(is_floating(batch.weights->dtype()) && batch.weights->sizes() == batch.indices.sizes(),
                "{}: per_sample_weights are {}; expected floats of the sizes of the indices {}", op,
                describe(*batch.weights), describe(batch.indices));
  }
  TUTTI_CHECK(batch.offsets.size(0) > 0, "{}: there are no offsets; expected the number of all bags + 1", op);
  if (!equal_bags) return 0;
  const SymInt features = batch.layout.size(0), bags = floordiv(batch.offsets.size(0) - 1, features);
  TUTTI_CHECK(bags * features + 1 == batch.offsets.size(0),
              "{}: {} offsets for {} features with B bags each; expected {} * B + 1, such as {} or {}", op,
              batch.offsets.size(0), features, features, bags * features + 1, (bags + 1) * features + 1);
  return bags;
}

Lookups read_lookups(const OpCall& call, const LookupOperands& batch, int64_t columns, int64_t table) {
  const char* op = call.op.name;
  const std::vector<int64_t> layout = dense_indices(batch.layout);
  Lookups lookups{.offsets = {},
                  .indices = to_contiguous(batch.indices),
                  .dense_offsets = dense_as(batch.offsets, DType::i64),
                  .equal_bags = layout.empty() || layout[1] < 0};
  const std::span<const int64_t> offsets(lookups.dense_offsets.data<int64_t>(),
                                         static_cast<size_t>(lookups.dense_offsets.numel()));
  lookups.offsets = offsets;
  const int64_t features = static_cast<int64_t>(layout.size() / 4), all = static_cast<int64_t>(offsets.size()) - 1,
                n = lookups.indices.numel();
  int64_t bag = 0;
  for (int64_t t = 0; t < features; ++t) {
    const int64_t* row = layout.data() + 4 * t;
    const bool equal = row[1] < 0;
    TUTTI_CHECK(equal == lookups.equal_bags, "{}: the layout has numbers of bags for some of the features only", op);
    const int64_t bags = equal ? all / std::max<int64_t>(features, 1) : row[1];
    TUTTI_CHECK(bags <= all - bag,
                "{}: {} offsets end within the bags of feature {}; expected the number of all bags + 1", op, all + 1,
                t);
    lookups.features.push_back({row[0], row[3], bag, bags, row[2], equal ? columns : row[3]});
    bag += bags;
  }
  TUTTI_CHECK(bag == all, "{}: {} offsets for {} bags; expected {}", op, all + 1, bag, bag + 1);
  TUTTI_CHECK(offsets.front() == 0, "{}: the first bag begins at offset {}; expected 0", op, offsets.front());
  for (size_t t = 0; t < lookups.features.size(); ++t) {
    const FeatureBags& f = lookups.features[t];
    if (table >= 0 && f.table != table) continue;
    int64_t fall = -1;  // the first bag whose offset falls
    for (int64_t k = f.first_bag + f.bags - 1; k >= f.first_bag; --k)
      fall = offsets[static_cast<size_t>(k) + 1] < offsets[static_cast<size_t>(k)] ? k : fall;
    TUTTI_CHECK(fall < 0, "{}: bag {} of feature {} begins at offset {} and ends at {}; offsets must not fall", op,
                fall - f.first_bag, t, offsets[static_cast<size_t>(fall)], offsets[static_cast<size_t>(fall) + 1]);
    const int64_t last = offsets[static_cast<size_t>(f.first_bag + f.bags)];
    TUTTI_CHECK(table < 0 || (offsets[static_cast<size_t>(f.first_bag)] >= 0 && last <= n),
                "{}: the bags of feature {} have the offsets {} to {}; expected 0 to the number of indices, {}", op, t,
                offsets[static_cast<size_t>(f.first_bag)], last, n);
  }
  TUTTI_CHECK(offsets.back() == n, "{}: the last offset is {}; expected the number of indices, {}", op, offsets.back(),
              n);
  return lookups;
}

void check_places(const OpCall& call, const Lookups& lookups, const Tensor& result, TablePooling pooling) {
  if (pooling == TablePooling::none) return;  // rows of entries
  int64_t bags = 0, columns = 0, elements = 0;
  for (const FeatureBags& f : lookups.features) {
    bags = f.bags;
    columns += f.width;
    elements += f.bags * f.width;
  }
  if (lookups.equal_bags)
    TUTTI_CHECK(result.ndim() == 2 && result.extents()[0] == bags && result.extents()[1] == columns,
                "{}: the gradient is {}; expected [{}, {}], for {} features with {} bags each and {} columns together",
                call.op.name, describe(result), bags, columns, lookups.features.size(), bags, columns);
  else
    TUTTI_CHECK(result.ndim() == 1 && result.numel() == elements,
                "{}: the gradient is {}; expected [{}], one dim, for {} features with numbers of bags of their own",
                call.op.name, describe(result), elements, lookups.features.size());
  for (size_t t = 0; t < lookups.features.size(); ++t) {
    const FeatureBags& f = lookups.features[t];
    const int64_t end = f.bags == 0 ? 0 : f.base + (f.bags - 1) * f.stride + f.width;
    const bool within_rows = !lookups.equal_bags || f.base + f.width <= columns;
    TUTTI_CHECK(f.base >= 0 && f.width >= 0 && within_rows && end <= result.numel(),
                "{}: feature {} of the layout has {} bags of {} columns, which do not lie in the gradient {}",
                call.op.name, t, f.bags, f.width, describe(result));
  }
}

namespace {

template <class Index>
int64_t count_outside(const Index* values, int64_t begin, int64_t end, int64_t rows, bool pruned) {
  const uint64_t first = pruned ? 1 : 0, limit = static_cast<uint64_t>(rows) + first;  // -1 becomes 0
  int64_t count = 0;
  for (int64_t p = begin; p < end; ++p)
    count += static_cast<uint64_t>(static_cast<int64_t>(values[p])) + first >= limit;
  return count;
}

template <class Index>
IndexReport find_bad(const Lookups& lookups, const std::vector<int64_t>& rows, bool pruned) {
  const Index* values = static_cast<const Index*>(lookups.indices.raw_data());
  IndexReport report;
  for (size_t t = 0; t < lookups.features.size(); ++t) {
    const FeatureBags& f = lookups.features[t];
    const int64_t limit = rows[static_cast<size_t>(f.table)];
    if (limit < 0) continue;
    const int64_t first = lookups.offsets[static_cast<size_t>(f.first_bag)],
                  last = lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)];
    std::atomic<int64_t> count{0};
    ThreadPool::current().parallel_for(last - first, kParallelGrain, [&](int64_t begin, int64_t end) {
      if (const int64_t mine = count_outside(values, first + begin, first + end, limit, pruned)) count += mine;
    });
    if (count == 0) continue;
    if (report.count == 0) {
      int64_t bag = f.first_bag, p = first;
      while (count_outside(values, p, p + 1, limit, pruned) == 0) ++p;
      while (lookups.offsets[static_cast<size_t>(bag) + 1] <= p) ++bag;
      report = {0, static_cast<int64_t>(t), bag - f.first_bag, p, static_cast<int64_t>(values[p]), limit};
    }
    report.count += count;
  }
  return report;
}

}  // namespace

IndexReport find_bad_indices(const Lookups& lookups, const std::vector<int64_t>& rows, bool pruned) {
  return lookups.indices.dtype() == DType::i64 ? find_bad<int64_t>(lookups, rows, pruned)
                                               : find_bad<int32_t>(lookups, rows, pruned);
}

void tell_bad_indices(const OpCall& call, const IndexReport& report, BoundsCheck mode) {
  if (report.count == 0 || mode == BoundsCheck::ignore) return;
  const std::string text = fmt::format("{}: {}", call.op.name, report.to_string());
  TUTTI_CHECK(mode != BoundsCheck::fatal, "{}; {}", text, legal_indices(report.rows));
  fmt::print(stderr, "tutti: {}\n", text);
}

void report_bad_indices(const OpCall& call, const IndexReport& found, BoundsCheck mode, const Tensor& report) {
  tell_bad_indices(call, found, mode);
  const int64_t numbers[] = {found.count, found.feature, found.bag, found.position, found.value, found.rows};
  std::copy(std::begin(numbers), std::end(numbers), report.data<int64_t>());
}

void each_part(const Lookups& lookups, FunctionRef<void(const FeatureBags& feature, int64_t first, int64_t last)> fn) {
  const int64_t bags = std::max<int64_t>(static_cast<int64_t>(lookups.offsets.size()) - 1, 0);
  double work = 0;
  for (const FeatureBags& f : lookups.features)
    work +=
        static_cast<double>(f.width) * static_cast<double>(lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)] -
                                                           lookups.offsets[static_cast<size_t>(f.first_bag)] + f.bags);
  const int64_t of_bag =
      std::max<int64_t>(static_cast<int64_t>(work / static_cast<double>(std::max<int64_t>(bags, 1))), 1);
  ThreadPool::current().parallel_for(
      bags, std::max<int64_t>(kParallelGrain / of_bag, 1), [&](int64_t begin, int64_t end) {
        for (const FeatureBags& f : lookups.features) {
          const int64_t first = std::max(begin, f.first_bag), last = std::min(end, f.first_bag + f.bags);
          if (first < last) fn(f, first, last);
        }
      });
}

}  // namespace tutti::facets
