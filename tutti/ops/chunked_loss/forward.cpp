#include "tutti/ops/chunked_loss/forward.h"

#include <numeric>
#include <utility>

#include "tutti/ops/chunked_loss/chunk.h"
#include "tutti/ops/chunked_loss/plan.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/runtime/allocator.h"

namespace tutti::chunked_loss {
namespace {

using Columns = std::vector<Tensor>;  // [B, 1] each

// The statistics of one chunk of rows while its classes come in the order of their tree. One place more than sums that
// wait: two are joined into a third.
class PendingStatistics {
 public:
  PendingStatistics(int64_t rows, int slots, int columns, DType dtype)
      : room_(Tensor::empty({(slots + 1) * columns * rows}, dtype)),
        rows_(rows),
        columns_(columns),
        places_(static_cast<size_t>(slots + 1)) {
    std::iota(places_.begin(), places_.end(), 0);
  }

  Columns at(int slot, int64_t rows) const {
    Columns columns;
    for (int k = 0; k < columns_; ++k)
      columns.push_back(room_.view_as({rows, 1}, {1, 1}, (places_[static_cast<size_t>(slot)] * columns_ + k) * rows_));
    return columns;
  }
  // What stands in `slot` is joined with those before it.
  void join(int slot, int merges, int64_t rows) {
    for (; merges > 0; --merges, --slot) {
      Columns both = at(slot - 1, rows);
      for (const Tensor& t : at(slot, rows)) both.push_back(t);
      run_step(kJoinStatistics, {}, both, at(static_cast<int>(places_.size()) - 1, rows));
      std::swap(places_[static_cast<size_t>(slot - 1)], places_.back());
    }
  }

 private:
  Tensor room_;
  int64_t rows_;
  int columns_;
  std::vector<int> places_;
};

// The statistics of a chunk, in slot `classes.pending`. With mix they are joined from those of leaves, whose sums are
// distances from maxima of their own.
void compute_statistics(const LogitChunk& chunk, PendingStatistics& pending, const TreePart& classes, int64_t rows,
                        bool mix) {
  if (!mix) return chunk.statistics(pending.at(classes.pending, rows));
  for (const TreePart& leaf : tree_parts(classes.count, tree_levels(classes.count, class_leaf()), class_leaf())) {
    chunk.statistics(pending.at(classes.pending + leaf.pending, rows), leaf);
    pending.join(classes.pending + leaf.pending, leaf.merges, rows);
  }
}

// finish(rows, columns): all classes of a chunk of rows are there.
template <class Finish>
void for_each_chunk_of_rows(const OpCall& call, Finish finish) {
  const MemoryCategoryScope category(MemoryCategory::workspace);
  if (attrs_of(call).needs != 0)
    plan_gradients(call);  // a backward that cannot fit is an error now, not after the forward
  const ChunkPlan plan = plan_statistics(call);
  KernelTrace::note_extern(call.op, [&] { return plan.describe(); });
  LogitChunk chunk(call, plan.chunk_rows(), plan.chunk_classes());
  PendingStatistics pending(plan.chunk_rows(), slots_of(plan.classes) + slots_of_leaves(call, plan.chunk_classes()),
                            statistics_columns(call), computes_in(call));
  for (const TreePart& rows : plan.rows) {
    for (const TreePart& classes : plan.classes) {
      chunk.compute(rows, classes);
      compute_statistics(chunk, pending, classes, rows.count, has_mix(call));
      pending.join(classes.pending, classes.merges, rows.count);
    }
    finish(rows, pending.at(0, rows.count));
  }
}

}  // namespace

void kernel_loss(const OpCall& call, std::span<const Tensor> outputs) {
  const bool mix = has_mix(call);
  for_each_chunk_of_rows(call, [&](const TreePart& rows, Columns columns) {
    keep_statistics(columns, rows_of(outputs[kRowStatistics], rows));
    columns.push_back(rows_of(call[kLabels], rows));
    Columns results{rows_of(outputs[kRowLoss], rows), rows_of(outputs[kRowLse], rows)};
    if (mix) results.push_back(rows_of(outputs[kRowMixed], rows));
    run_step(kFinishStatistics, step_attrs(call, 0), columns, results);
  });
}

void kernel_shard_statistics(const OpCall& call, std::span<const Tensor> outputs) {
  for_each_chunk_of_rows(call, [&](const TreePart& rows, const Columns& columns) {
    for (size_t k = 0; k < 3; ++k) run_step(kConvert, {columns[k]}, rows_of(outputs[k], rows));
  });
}

}  // namespace tutti::chunked_loss
