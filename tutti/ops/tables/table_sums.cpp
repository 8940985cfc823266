#include "tutti/ops/tables/table_sums.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/tables/row_lanes.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

constexpr int64_t kBlock = 64;         // columns whose sums stay in registers
constexpr int64_t kAheadBytes = 2048;  // of terms that are asked for before they are added
constexpr int64_t kRowsAhead = 8;      // rows that are asked for before they are used
constexpr int64_t kLong = 1 << 13;     // entries of a row that threads share
constexpr int64_t kPiece = 1 << 11;

size_t inputs_of_shard(const TableAttrs& a) { return a.weighted ? 5 : 4; }

}  // namespace

const Tensor& gradient_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard) {
  return call[first + static_cast<size_t>(shard) * inputs_of_shard(a)];
}

LookupOperands batch_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard) {
  return LookupOperands::at(call, first + static_cast<size_t>(shard) * inputs_of_shard(a) + 1, a.weighted != 0);
}

void check_shards(const OpCall& call, const TableAttrs& a, size_t first) {
  for (int64_t s = 0; s < a.shards; ++s) {
    const Tensor& grad = gradient_of_shard(call, a, first, s);
    const LookupOperands batch = batch_of_shard(call, a, first, s);
    const bool equal_bags = a.pooling != TablePooling::none && grad.ndim() == 2;
    const SymInt bags = check_lookup_operands(call, batch, a.pooling, equal_bags);
    TUTTI_CHECK(is_floating(grad.dtype()) && !is_fp8(grad.dtype()), "{}: the gradient is {}; expected floats",
                call.op.name, describe(grad));
    if (a.pooling == TablePooling::none) {
      TUTTI_CHECK(grad.ndim() == 2 && grad.size(0) == batch.indices.size(0) && grad.size(1) == a.columns,
                  "{}: the gradient is {}; expected [{}, {}], a row for each index", call.op.name, describe(grad),
                  batch.indices.size(0), a.columns);
    } else {
      TUTTI_CHECK(grad.ndim() == 1 || (equal_bags && grad.size(0) == bags),
                  "{}: the gradient is {} for {} bags of each feature", call.op.name, describe(grad), bags);
    }
  }
}

std::string whole_operands(const OpCall& call, size_t first) {
  std::string text;
  for (size_t i = first; i < call.inputs.size(); ++i)
    text += fmt::format("#a{}[{}] ", i, std::string(static_cast<size_t>(call[i].ndim()), 'A'));
  return text;
}

// ---- what the entries are -------------------------------------------------------------------------------------------

template <class Sum>
TableSums<Sum>::TableSums(const OpCall& call, const TableAttrs& a, size_t first) : columns_(a.columns) {
  std::vector<Lookups> shards;
  std::vector<int64_t> entries = {0};
  int64_t leaf = 0, most = 1;
  for (int64_t s = 0; s < a.shards; ++s) {
    const Tensor& grad = gradient_of_shard(call, a, first, s);
    shards.push_back(
        read_lookups(call, batch_of_shard(call, a, first, s), grad.ndim() == 2 ? grad.extents()[1] : a.columns));
    const Lookups& lookups = shards.back();
    check_places(call, lookups, grad, a.pooling);
    std::vector<int64_t> rows;
    first_leaf_.push_back(leaf);
    int64_t n = 0;
    for (const FeatureBags& f : lookups.features) {
      rows.resize(std::max(rows.size(), static_cast<size_t>(f.table) + 1), -1);
      if (f.table != a.table) continue;
      TUTTI_CHECK(f.width == a.columns, "{}: a feature of the layout has {} columns; the table has {}", call.op.name,
                  f.width, a.columns);
      n += lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)] -
           lookups.offsets[static_cast<size_t>(f.first_bag)];
      leaf += (f.bags + token_grain() - 1) / token_grain();
    }
    if (static_cast<size_t>(a.table) < rows.size()) rows[static_cast<size_t>(a.table)] = a.rows;
    if (a.bounds == BoundsCheck::fatal) tell_bad_indices(call, find_bad_indices(lookups, rows), a.bounds);
    entries.push_back(entries.back() + n);
    most = std::max(most, leaf - first_leaf_.back());
  }
  TUTTI_CHECK(leaf <= std::numeric_limits<int32_t>::max(), "{}: {} ranges of bags, more than 31 bits can count",
              call.op.name, leaf);
  first_leaf_.push_back(leaf);
  levels_ = std::bit_width(static_cast<uint64_t>(most)) + std::bit_width(static_cast<uint64_t>(a.shards)) + 2;
  ahead_ = std::clamp<int64_t>(kAheadBytes / std::max<int64_t>(columns_ * static_cast<int64_t>(sizeof(Sum)), 1), 8, 32);
  const Extents n = {entries.back()};
  indices_ = Tensor::empty(n, a.rows <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64);
  terms_ = Tensor::empty(n, DType::i64);
  leaves_ = Tensor::empty(n, DType::i32);
  if (a.weighted) factors_ = Tensor::empty(n, dtype_of<Sum>);
  for (int64_t s = 0; s < a.shards; ++s)
    add_shard(call, a, first, s, shards[static_cast<size_t>(s)], entries[static_cast<size_t>(s)]);
  runs_ = std::make_unique<RowRuns>(indices_, a.rows, -1);
}

template <class Sum>
void TableSums<Sum>::add_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard,
                               const Lookups& lookups, int64_t entry) {
  const Tensor grad = dense_as(gradient_of_shard(call, a, first, shard), dtype_of<Sum>);
  const LookupOperands batch = batch_of_shard(call, a, first, shard);
  const Tensor weights = batch.weights ? dense_as(*batch.weights, dtype_of<Sum>) : Tensor{};
  kept_.push_back(grad);
  int64_t* const terms = terms_.data<int64_t>();
  int32_t* const leaves = leaves_.data<int32_t>();
  const bool in_32_bits = indices_.dtype() == DType::i32;
  int64_t leaf = first_leaf_[static_cast<size_t>(shard)];
  for (const FeatureBags& f : lookups.features) {
    if (f.table != a.table) continue;
    const auto offset = [&](int64_t b) { return lookups.offsets[static_cast<size_t>(f.first_bag + b)]; };
    Tensor divided;  // the gradient of each bag, divided by its length
    if (a.pooling == TablePooling::mean) {
      divided = Tensor::empty({f.bags, f.width}, dtype_of<Sum>);
      kept_.push_back(divided);
    }
    const int64_t behind = offset(0) - entry, range = token_grain();
    const int64_t grain = std::max<int64_t>(kParallelGrain / (a.columns + 1), 1);
    ThreadPool::current().parallel_for(f.bags, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const Sum* row = grad.template data<Sum>() + (a.pooling == TablePooling::none ? 0 : f.base + b * f.stride);
        if (divided.defined()) {
          const Sum length = static_cast<Sum>(std::max<int64_t>(offset(b + 1) - offset(b), 1));
          Sum* to = divided.template data<Sum>() + b * f.width;
          for (int64_t d = 0; d < f.width; ++d) to[d] = row[d] / length;
          row = to;
        }
        for (int64_t p = offset(b); p < offset(b + 1); ++p) {
          const int64_t e = p - behind;
          const Sum* term = a.pooling == TablePooling::none ? row + p * f.width : row;
          terms[e] = static_cast<int64_t>(reinterpret_cast<intptr_t>(term));
          leaves[e] = static_cast<int32_t>(leaf + b / range);
          if (weights.defined()) factors_.data<Sum>()[e] = weights.template data<Sum>()[p];
          const int64_t index = lookups.indices.dtype() == DType::i64 ? lookups.indices.data<int64_t>()[p]
                                                                      : lookups.indices.data<int32_t>()[p];
          const int64_t taken = static_cast<uint64_t>(index) < static_cast<uint64_t>(a.rows) ? index : -1;
          if (in_32_bits) indices_.data<int32_t>()[e] = static_cast<int32_t>(taken);
          else indices_.data<int64_t>()[e] = taken;
        }
      }
    });
    entry += offset(f.bags) - offset(0);
    leaf += (f.bags + token_grain() - 1) / token_grain();
  }
}

// ---- the tree -------------------------------------------------------------------------------------------------------

template <class Sum>
auto TableSums<Sum>::root() const -> Node {
  const int64_t shards = static_cast<int64_t>(first_leaf_.size()) - 1;
  return {0, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(shards))), 0, first_leaf_[shards > 0 ? 1 : 0]};
}

// The halves of `left`, and the first leaf of the right one; false for a leaf.
template <class Sum>
bool TableSums<Sum>::split(Node& left, Node& right, int64_t& border) const {
  const int64_t shards = static_cast<int64_t>(first_leaf_.size()) - 1;
  const auto of_shards = [&](int64_t s0, int64_t s1) {
    const auto begin = [&](int64_t s) { return first_leaf_[static_cast<size_t>(std::min(s, shards))]; };
    return Node{s0, s1, begin(s0), begin(s1)};
  };
  if (left.s1 - left.s0 > 1) {
    const int64_t middle = (left.s0 + left.s1) / 2;
    right = of_shards(middle, left.s1);
    left = of_shards(left.s0, middle);
  } else {
    if (left.r1 - left.r0 <= 1) return false;
    const int64_t middle = left.r0 + (left.r1 - left.r0 + 1) / 2;
    right = {left.s0, left.s1, middle, left.r1};
    left.r1 = middle;
  }
  border = right.r0;
  return true;
}

template <class Sum>
void TableSums<Sum>::ask_ahead(const uint64_t* key) const {
  const uint64_t* const end = runs_->first(runs_->count());
  if (end - key > 2 * ahead_) __builtin_prefetch(terms_.data<int64_t>() + runs_->entry_of(key[2 * ahead_]));
  if (end - key <= ahead_) return;
  const char* row = reinterpret_cast<const char*>(term(key[ahead_]));
  for (int64_t byte = 0; byte < columns_ * static_cast<int64_t>(sizeof(Sum)); byte += 64)
    __builtin_prefetch(row + byte);
}

// The columns [column, column + n) of the terms of [first, last), at least one, one after another; kWidth is n, or 0.
template <class Sum>
template <int64_t kWidth>
void TableSums<Sum>::chain(const uint64_t* first, const uint64_t* last, int64_t column, int64_t n, Sum* out) const {
  if constexpr (kWidth > 0) {
    ColumnSums<Sum, kWidth> sums;
    sums.clear();
    for (const uint64_t* key = first; key != last; ++key) {
      if (column == 0) ask_ahead(key);
      if (factors_.defined()) sums.add(term(*key) + column, factors_.data<Sum>()[runs_->entry_of(*key)]);
      else sums.add(term(*key) + column);
    }
    return sums.store(out);
  }
  Sum total[kBlock];
  for (int64_t d = 0; d < n; ++d) total[d] = static_cast<Sum>(kSumIdentity);
  for (const uint64_t* key = first; key != last; ++key) {
    if (column == 0) ask_ahead(key);
    const Sum* row = term(*key) + column;
    if (!factors_.defined()) {
      for (int64_t d = 0; d < n; ++d) total[d] += row[d];
    } else {
      const Sum factor = factors_.data<Sum>()[runs_->entry_of(*key)];
      for (int64_t d = 0; d < n; ++d) total[d] += row[d] * factor;
    }
  }
  for (int64_t d = 0; d < n; ++d) out[d] = total[d];
}

// `scratch` has columns_ elements for each level below the node.
template <class Sum>
void TableSums<Sum>::sum(const uint64_t* first, const uint64_t* last, Node node, Sum* out, Sum* scratch) const {
  // Two terms, and those of one leaf, are a chain wherever they lie.
  while (last - first > 2 && leaf(*first) != leaf(last[-1])) {
    Node right;
    int64_t border;
    if (!split(node, right, border)) break;
    const uint64_t* middle = std::partition_point(first, last, [&](uint64_t key) { return leaf(key) < border; });
    if (middle == last) continue;
    if (middle == first) {
      node = right;
      continue;
    }
    sum(first, middle, node, out, scratch);
    sum(middle, last, right, scratch, scratch + columns_);
    for (int64_t d = 0; d < columns_; ++d) out[d] += scratch[d];
    return;
  }
  for (int64_t column = 0; column < columns_; column += kBlock) {
    const int64_t n = std::min(kBlock, columns_ - column);
    if (n == kBlock) chain<kBlock>(first, last, column, n, out + column);
    else if (n == 32) chain<32>(first, last, column, n, out + column);
    else if (n == 16) chain<16>(first, last, column, n, out + column);
    else chain<0>(first, last, column, n, out + column);
  }
}

// ---- rows with very many entries ------------------------------------------------------------------------------------

// The nodes whose entries threads sum, in order.
template <class Sum>
void TableSums<Sum>::cut(const uint64_t* first, const uint64_t* last, Node node, std::vector<Piece>& pieces) const {
  if (first == last) return;
  Node left = node, right;
  int64_t border;
  if (last - first <= kPiece || !split(left, right, border)) {
    pieces.push_back({first, last, node});
    return;
  }
  const uint64_t* middle = std::partition_point(first, last, [&](uint64_t key) { return leaf(key) < border; });
  cut(first, middle, left, pieces);
  cut(middle, last, right, pieces);
}

// Adds the sums of the pieces, which begin at `piece`, as the tree says.
template <class Sum>
void TableSums<Sum>::join(const uint64_t* first, const uint64_t* last, Node node, const Sum*& piece, Sum* out,
                          Sum* scratch) const {
  Node left = node, right;
  int64_t border;
  if (last - first <= kPiece || !split(left, right, border)) {
    std::copy(piece, piece + columns_, out);
    piece += columns_;
    return;
  }
  const uint64_t* middle = std::partition_point(first, last, [&](uint64_t key) { return leaf(key) < border; });
  if (middle == last) return join(first, last, left, piece, out, scratch);
  if (middle == first) return join(first, last, right, piece, out, scratch);
  join(first, middle, left, piece, out, scratch);
  join(middle, last, right, piece, scratch, scratch + columns_);
  for (int64_t d = 0; d < columns_; ++d) out[d] += scratch[d];
}

template <class Sum>
void TableSums<Sum>::long_run(int64_t run, Sum* out) const {
  const uint64_t *first = runs_->first(run), *last = runs_->first(run + 1);
  std::vector<Piece> pieces;
  cut(first, last, root(), pieces);
  std::vector<Sum> sums(pieces.size() * static_cast<size_t>(columns_));
  ThreadPool::current().parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<Sum> scratch(static_cast<size_t>(levels_ * columns_));
    for (int64_t i = begin; i < end; ++i) {
      const Piece& p = pieces[static_cast<size_t>(i)];
      sum(p.first, p.last, p.node, sums.data() + i * columns_, scratch.data());
    }
  });
  std::vector<Sum> scratch(static_cast<size_t>(levels_ * columns_));
  const Sum* piece = sums.data();
  join(first, last, root(), piece, out, scratch.data());
}

template <class Sum>
void TableSums<Sum>::each(FunctionRef<void(int64_t run, int64_t row, const Sum* sums)> use,
                          FunctionRef<void(int64_t row)> ask) const {
  const int64_t count = runs_->count();
  const uint64_t* const keys = runs_->first(0);
  const int64_t entries = runs_->first(count) - keys;
  const bool shares = ThreadPool::current().threads() > 1 && !ThreadPool::is_inside_loop();
  const auto is_long = [&](int64_t run) { return shares && runs_->first(run + 1) - runs_->first(run) >= kLong; };
  // A thread takes the runs that begin among its entries.
  const int64_t grain = std::max<int64_t>(kParallelGrain / (columns_ + 1), 64);
  ThreadPool::current().parallel_for(entries, grain, [&](int64_t begin, int64_t end) {
    std::vector<Sum> sums(static_cast<size_t>((levels_ + 1) * columns_));
    int64_t run = 0, behind = count;
    while (run < behind) {
      const int64_t middle = run + (behind - run) / 2;
      if (runs_->first(middle) - keys < begin) run = middle + 1;
      else behind = middle;
    }
    for (; run < count && runs_->first(run) - keys < end; ++run) {
      if (run + kRowsAhead < count) ask(runs_->row(run + kRowsAhead));
      if (is_long(run)) continue;
      sum(runs_->first(run), runs_->first(run + 1), root(), sums.data(), sums.data() + columns_);
      use(run, runs_->row(run), sums.data());
    }
  });
  if (!shares || entries < kLong) return;
  std::vector<Sum> sums(static_cast<size_t>(columns_));
  for (int64_t run = 0; run < count; ++run) {
    if (!is_long(run)) continue;
    long_run(run, sums.data());
    use(run, runs_->row(run), sums.data());
  }
}

template class TableSums<float>;
template class TableSums<double>;

}  // namespace tutti::facets
