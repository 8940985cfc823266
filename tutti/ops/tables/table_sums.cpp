#include "tutti/ops/tables/table_sums.h"

#include <algorithm>
#include <bit>

#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/ops/tables/row_lanes.h"
#include "tutti/ops/tables/wide_sums.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

constexpr int64_t kBlock = 64;         // columns whose sums stay in registers
constexpr int64_t kAheadBytes = 2048;  // of terms that are asked for before they are added
constexpr int64_t kRowsAhead = 16;     // entries whose rows are asked for before they are used
constexpr int64_t kLong = 1 << 13;     // entries of a row that threads share
constexpr int64_t kPiece = 1 << 11;    // of them at least that are worth a thread

}  // namespace

template <class Sum>
TableSums<Sum>::TableSums(const OpCall& call, const TableAttrs& a, size_t first)
    : columns_(a.columns),
      wide_(codegen::has_wide_registers(codegen::cpu_target()) && has_wide_blocks(columns_) && !a.weighted),
      ahead_(
          std::clamp<int64_t>(kAheadBytes / std::max<int64_t>(columns_ * static_cast<int64_t>(sizeof(Sum)), 1), 8, 32)),
      entries_(call, a, first),
      levels_(std::bit_width(entries_.leaves().size()) + std::bit_width(static_cast<uint64_t>(a.shards)) + 2) {}

template <class Sum>
int64_t TableSums<Sum>::number_runs(int64_t* numbers, int64_t* rows) const {
  int64_t runs = 0;
  const auto number = [&](const auto* keys) {
    for (int64_t i = 0; i < entries(); ++i) {
      if (i > 0 && row_of(keys[i]) == row_of(keys[i - 1])) continue;
      numbers[i] = runs;
      rows[runs++] = row_of(keys[i]);
    }
  };
  if (entries_.in_32_bits()) number(entries_.template keys<uint32_t>());
  else number(entries_.template keys<uint64_t>());
  return runs;
}

// ---- chains ---------------------------------------------------------------------------------------------------------

// The columns [column, column + n) of the terms of [first, last), at least one, one after another; kWidth is n, or 0.
template <class Sum>
template <int64_t kWidth, class Key>
void TableSums<Sum>::chain(const Key* first, const Key* last, const Part& part, int64_t column, int64_t n,
                           Sum* out) const {
  const Key mask = static_cast<Key>((Key{1} << entries_.source_bits()) - 1);
  const int64_t nbytes = columns_ * static_cast<int64_t>(sizeof(Sum));
  const Key* const end = entries_.template keys<Key>() + entries_.count();
  const auto run = [&](auto add, auto term_of) {
    // What lies before `asked` has its term asked for; the terms of the next rows are among them.
    const Key* const asked = column > 0 || end - first <= ahead_ ? first : std::min(last, end - ahead_);
    const Key* key = first;
    for (; key < asked; ++key) {
      prefetch_lines(term_of(static_cast<int64_t>(key[ahead_] & mask)), nbytes);
      add(static_cast<int64_t>(*key & mask));
    }
    for (; key < last; ++key) add(static_cast<int64_t>(*key & mask));
  };
  const Sum* const* const terms = entries_.terms();
  const Sum* const factors = entries_.factors();
  const auto in_part = [&](int64_t source) { return part.terms + (source - part.first) * part.stride; };
  const auto listed = [&](int64_t source) { return terms[source]; };
  if constexpr (kWidth > 0) {
    ColumnSums<Sum, kWidth> sums;
    sums.clear();
    if (terms) run([&](int64_t s) { sums.add(terms[s] + column, factors[s]); }, listed);
    else run([&](int64_t s) { sums.add(in_part(s) + column); }, in_part);
    return sums.store(out);
  }
  Sum total[kBlock];
  for (int64_t d = 0; d < n; ++d) total[d] = static_cast<Sum>(kSumIdentity);
  const auto add_row = [&](const Sum* row) {
    for (int64_t d = 0; d < n; ++d) total[d] += row[d];
  };
  const auto add_scaled = [&](const Sum* row, Sum factor) {
    for (int64_t d = 0; d < n; ++d) total[d] += row[d] * factor;
  };
  if (terms) run([&](int64_t s) { add_scaled(terms[s] + column, factors[s]); }, listed);
  else run([&](int64_t s) { add_row(in_part(s) + column); }, in_part);
  for (int64_t d = 0; d < n; ++d) out[d] = total[d];
}

// The same of floats without weights, with registers of 512 bits.
template <class Sum>
template <int kVectors, class Key>
[[TUTTI_WIDE]] void TableSums<Sum>::wide_chain(const Key* first, const Key* last, const Part& part, int64_t column,
                                               float* out) const {
  const Key mask = static_cast<Key>((Key{1} << entries_.source_bits()) - 1);
  const Key* const asked = entries_.template keys<Key>() + entries_.count() - ahead_;
  const uint64_t pitch = static_cast<uint64_t>(part.stride) * sizeof(float);
  const uintptr_t terms = reinterpret_cast<uintptr_t>(part.terms + column) - static_cast<uint64_t>(part.first) * pitch;
  WideSums<kVectors> sums;
  for (const Key* key = first; key < last; ++key) {
    if (key < asked) sums.template ask_for<sizeof(float)>(terms + (key[ahead_] & mask) * pitch);
    sums.add(reinterpret_cast<const float*>(terms + (*key & mask) * pitch));
  }
  sums.store(out);
}

template <class Sum>
template <class Key>
void TableSums<Sum>::add_chain(const Key* first, const Key* last, const Part& part, Sum* out) const {
  if constexpr (std::is_same_v<Sum, float>) {
    if (wide_) {
      each_wide_block(columns_, [&]<int kVectors>(int64_t column) __attribute__((always_inline)) {
        wide_chain<kVectors>(first, last, part, column, out + column);
      });
      return;
    }
  }
  for (int64_t column = 0; column < columns_; column += kBlock) {
    const int64_t n = std::min(kBlock, columns_ - column);
    if (n == kBlock) chain<kBlock>(first, last, part, column, n, out + column);
    else if (n == 32) chain<32>(first, last, part, column, n, out + column);
    else if (n == 16) chain<16>(first, last, part, column, n, out + column);
    else chain<0>(first, last, part, column, n, out + column);
  }
}

// ---- the tree -------------------------------------------------------------------------------------------------------

// Adds nodes that meet below `depth`, at which they meet what comes next.
template <class Sum>
void TableSums<Sum>::close(Nodes& nodes, int depth) const {
  while (nodes.count - nodes.base > 1 && nodes.depths[static_cast<size_t>(nodes.count) - 1] > depth) {
    Sum* const right = nodes.values.data() + (nodes.count - 1) * columns_;
    Sum* const left = right - columns_;
    for (int64_t d = 0; d < columns_; ++d) left[d] += right[d];
    --nodes.count;
  }
}

// Makes place for a node that meets the one before it at `depth`.
template <class Sum>
void TableSums<Sum>::open(Nodes& nodes, int depth) const {
  close(nodes, depth);
  // The first one meets a node that is not here at a greater depth, so it is whole.
  if (nodes.count - nodes.base == 1 && nodes.depths[static_cast<size_t>(nodes.base)] > depth) nodes.base = nodes.count;
  if (static_cast<size_t>(nodes.count) == nodes.depths.size()) {
    nodes.depths.resize(2 * nodes.depths.size());
    nodes.values.resize(2 * nodes.values.size());
  }
  nodes.depths[static_cast<size_t>(nodes.count++)] = depth;
}

// Adds a node for each leaf of the entries [first, last) of one row. `path_before`: of the leaf before the first one.
template <class Sum>
template <class Key>
void TableSums<Sum>::add_leaves(const Key* first, const Key* last, uint64_t path_before, Nodes& nodes) const {
  const auto& leaves = entries_.leaves();
  while (first != last) {
    const size_t leaf = entries_.leaf_of(source_of(*first));
    const int64_t behind = leaves[leaf].end;
    const Key* end = first + 1;
    while (end != last && source_of(*end) < behind) ++end;
    open(nodes, std::countl_zero(path_before ^ leaves[leaf].path));
    add_chain(first, end, entries_.parts()[leaves[leaf].part], nodes.values.data() + (nodes.count - 1) * columns_);
    path_before = leaves[leaf].path;
    first = end;
  }
}

// The sum of the entries [first, last) of one row: the term of a single one, in place, else the only node.
template <class Sum>
template <class Key>
const Sum* TableSums<Sum>::sum_of_run(const Key* first, const Key* last, Nodes& nodes) const {
  nodes.base = nodes.count = 0;
  const auto& parts = entries_.parts();
  Sum* const only = nodes.values.data();
  if (last - first == 1 && entries_.terms() == nullptr) {
    const auto term_of = [&](Key key) {
      const int64_t source = source_of(key);
      const Part& part = entries_.part_of(source);
      return part.terms + (source - part.first) * part.stride;
    };
    if (entries_.template keys<Key>() + entries_.count() - first > ahead_)
      prefetch_lines(term_of(first[ahead_]), columns_ * static_cast<int64_t>(sizeof(Sum)));
    return term_of(*first);
  }
  // One term, and two of one part, are a chain wherever they lie.
  if (last - first == 1) {
    add_chain(first, last, entries_.part_of(source_of(*first)), only);
  } else if (last - first == 2 && parts.size() == 1) {
    add_chain(first, last, parts[0], only);
  } else {
    // The first node meets nothing before it.
    add_leaves(first, last, ~entries_.leaves()[entries_.leaf_of(source_of(*first))].path, nodes);
    close(nodes, -1);
  }
  return only;
}

// The same by all threads: each adds neighbouring leaves, and what is left of them is joined in order.
template <class Sum>
template <class Key>
void TableSums<Sum>::sum_long_run(const Key* first, const Key* last, Nodes& nodes) const {
  const auto& leaves = entries_.leaves();
  std::vector<const Key*> borders = {first};
  while (last - borders.back() > kPiece) {
    const Key* at = borders.back() + kPiece;
    const int64_t behind = leaves[entries_.leaf_of(source_of(at[-1]))].end;
    at = std::partition_point(at, last, [&](Key key) { return source_of(key) < behind; });
    borders.push_back(at);
  }
  if (borders.back() != last) borders.push_back(last);
  std::vector<Nodes> pieces;
  for (size_t i = 0; i + 1 < borders.size(); ++i) pieces.emplace_back(0, 1);
  ThreadPool::current().parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto leaf_at = [&](const Key* key) { return leaves[entries_.leaf_of(source_of(*key))].path; };
      pieces[i] = Nodes(columns_, 2 * levels_);
      add_leaves(borders[i], borders[i + 1], i == 0 ? ~leaf_at(first) : leaf_at(borders[i] - 1), pieces[i]);
    }
  });
  nodes.base = nodes.count = 0;
  for (const Nodes& piece : pieces) {
    for (int64_t i = 0; i < piece.count; ++i) {
      open(nodes, piece.depths[static_cast<size_t>(i)]);
      std::copy_n(piece.values.data() + i * columns_, columns_, nodes.values.data() + (nodes.count - 1) * columns_);
    }
  }
  close(nodes, -1);
}

// ---- all rows -------------------------------------------------------------------------------------------------------

template <class Sum>
template <class Key>
void TableSums<Sum>::each_run(FunctionRef<void(int64_t, int64_t, const Sum*)> use,
                              FunctionRef<void(int64_t)> ask) const {
  const Key* const keys = entries_.template keys<Key>();
  const int64_t n = entries_.count();
  const bool shares = ThreadPool::current().threads() > 1 && !ThreadPool::is_inside_loop();
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> long_runs;
  // A thread takes the rows that begin among its entries.
  const int64_t grain = std::max<int64_t>(kParallelGrain / (columns_ + 1), 64);
  ThreadPool::current().parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    Nodes nodes(columns_, levels_);
    int64_t first = begin;
    while (first > 0 && first < end && row_of(keys[first]) == row_of(keys[first - 1])) ++first;
    for (int64_t asked = first + 1; first < end;) {
      const int64_t row = row_of(keys[first]);
      int64_t last = first + 1;
      while (last < n && row_of(keys[last]) == row) ++last;
      for (asked = std::max(asked, last); asked < std::min(last + kRowsAhead, n); ++asked) {
        if (row_of(keys[asked]) != row_of(keys[asked - 1])) ask(row_of(keys[asked]));
      }
      if (shares && last - first >= kLong) {
        const std::lock_guard lock(mutex);
        long_runs.emplace_back(first, last);
      } else {
        use(first, row, sum_of_run(keys + first, keys + last, nodes));
      }
      first = last;
    }
  });
  Nodes nodes(columns_, levels_);
  for (const auto& [first, last] : long_runs) {
    sum_long_run(keys + first, keys + last, nodes);
    use(first, row_of(keys[first]), nodes.values.data());
  }
}

template <class Sum>
void TableSums<Sum>::each(FunctionRef<void(int64_t place, int64_t row, const Sum* sums)> use,
                          FunctionRef<void(int64_t row)> ask) const {
  if (entries_.in_32_bits()) each_run<uint32_t>(use, ask);
  else each_run<uint64_t>(use, ask);
}

template class TableSums<float>;
template class TableSums<double>;

}  // namespace tutti::facets
