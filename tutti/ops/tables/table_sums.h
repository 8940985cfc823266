// The gradients of the rows of one table, summed over all entries of all virtual shards of a step, in the order that
// table_batched_backward.h states.
#pragma once

#include <vector>

#include "tutti/ops/indexing/row_runs.h"
#include "tutti/ops/tables/lookups.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::facets {

// The ops that go back to one table share these attrs. From some place on, their inputs are for every shard: the
// gradient of the result, and the operands of the batch.
struct TableAttrs {
  int64_t table, rows, columns;
  int64_t shards;
  int64_t weighted;  // whether batches have weights
  TablePooling pooling;
  BoundsCheck bounds;

  static constexpr auto fields() {
    return field_list(field::number<&TableAttrs::table>("table"), field::number<&TableAttrs::rows>("rows"),
                      field::number<&TableAttrs::columns>("columns"), field::number<&TableAttrs::shards>("shards"),
                      field::number<&TableAttrs::weighted>("weighted"), field::rule<&TableAttrs::pooling>("pooling"),
                      field::rule<&TableAttrs::bounds>("bounds"));
  }
};

// The inputs of a shard, among those of a call whose shards begin at input `first`.
const Tensor& gradient_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard);
LookupOperands batch_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard);
// Dims and dtypes of these inputs. UsageError.
void check_shards(const OpCall& call, const TableAttrs& a, size_t first);
// The rule of an op over whole operands, for inputs [first, end).
std::string whole_operands(const OpCall& call, size_t first);

// Sum: float, or double where the gradients are f64.
template <class Sum>
class TableSums {
 public:
  // UsageError for batches that the ops refuse. Reads the indices and, while it lives, the gradients.
  TableSums(const OpCall& call, const TableAttrs& a, size_t first);

  // Rows with an entry, ascending.
  int64_t count() const { return runs_->count(); }
  int64_t row(int64_t run) const { return runs_->row(run); }

  // Calls use(run, row, sums) once for every row, on any thread; and ask(row) some rows before that.
  void each(FunctionRef<void(int64_t run, int64_t row, const Sum* sums)> use, FunctionRef<void(int64_t row)> ask) const;

 private:
  // A node of the tree: shards [s0, s1), and where that is one shard, its leaves [r0, r1).
  struct Node {
    int64_t s0, s1, r0, r1;
  };
  struct Piece {
    const uint64_t *first, *last;
    Node node;
  };

  void add_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard, const Lookups& lookups,
                 int64_t entry);
  int64_t leaf(uint64_t key) const { return leaves_.data<int32_t>()[runs_->entry_of(key)]; }
  const Sum* term(uint64_t key) const {
    return reinterpret_cast<const Sum*>(terms_.data<int64_t>()[runs_->entry_of(key)]);
  }
  bool split(Node& left, Node& right, int64_t& border) const;
  void ask_ahead(const uint64_t* key) const;
  template <int64_t kWidth>
  void chain(const uint64_t* first, const uint64_t* last, int64_t column, int64_t n, Sum* out) const;
  void sum(const uint64_t* first, const uint64_t* last, Node node, Sum* out, Sum* scratch) const;
  void cut(const uint64_t* first, const uint64_t* last, Node node, std::vector<Piece>& pieces) const;
  void join(const uint64_t* first, const uint64_t* last, Node node, const Sum*& piece, Sum* out, Sum* scratch) const;
  void long_run(int64_t run, Sum* out) const;
  Node root() const;

  int64_t columns_, ahead_, levels_ = 0;
  // They hold for each entry, in memory that the allocator keeps from call to call: its row (i32 where that is enough;
  // -1 where it is out of range), where the row of the gradient lies in memory that it adds (i64), its leaf (i32), and
  // its factor, if there are any.
  Tensor indices_, terms_, leaves_, factors_;
  std::vector<int64_t> first_leaf_;  // of each shard, and the end
  std::vector<Tensor> kept_;         // what terms_ points to
  std::unique_ptr<RowRuns> runs_;
};

}  // namespace tutti::facets
