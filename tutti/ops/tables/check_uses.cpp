#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/table_sums.h"

namespace tutti::facets {

void check_uses(const char* op, std::span<const TableUse> uses, std::span<const TableOfBatch> tables,
                const TableBatchOptions& options) {
  std::vector<int64_t> rows;
  for (const TableOfBatch& t : tables) rows.push_back(t.rows);
  const ShardInputs inputs = inputs_of_uses(op, uses, tables[0], options.pooling);
  // Without pooling all features have the width of the first.
  int64_t first = 0;
  for (const TableUse& use : uses)
    if (!use.batch.features.empty()) first = use.batch.features[0];
  const OpDef named{.name = op};
  const TableAttrs a{first,
                     rows[static_cast<size_t>(first)],
                     tables[0].columns[static_cast<size_t>(first)],
                     static_cast<int64_t>(uses.size()),
                     inputs.weighted,
                     options.pooling,
                     options.bounds};
  const Attrs attrs = Attrs::of(a);
  const OpCall call{named, inputs.list, attrs};
  check_shards(call, a, 0);
  for (int64_t s = 0; s < a.shards; ++s) {
    const Tensor& grad = gradient_of_shard(call, a, 0, s);
    const Lookups lookups =
        read_lookups(call, batch_of_shard(call, a, 0, s), grad.ndim() == 2 ? grad.extents()[1] : a.columns);
    check_places(call, lookups, grad, a.pooling);
    if (a.bounds == BoundsCheck::fatal) tell_bad_indices(call, find_bad_indices(lookups, rows), a.bounds);
  }
}

}  // namespace tutti::facets
