#include "tutti/ops/indexing/row_sums.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

constexpr int64_t kRows = 64;  // of a block
// Columns of a block at most: long pieces of rows, a few of which stay near; and at least, where threads need more
// blocks.
constexpr int64_t kColumns = 512, kFewestColumns = 128;
constexpr int64_t kAhead = 8;  // entries whose terms are asked for before they are added

constexpr int64_t kStreamed = 8 << 20;  // bytes of a result that no cache keeps: stored without reading its lines first

// A finished piece of a row on its way to memory, past the caches. `to` is aligned to vectors, `count` whole vectors.
void stream(float* to, const float* from, int64_t count) {
  for (int64_t d = 0; d < count; d += 8) _mm256_stream_ps(to + d, _mm256_loadu_ps(from + d));
}
void stream(double* to, const double* from, int64_t count) {
  for (int64_t d = 0; d < count; d += 4) _mm256_stream_pd(to + d, _mm256_loadu_pd(from + d));
}

enum class Term : uint8_t { plain, scaled, chosen };

// The columns [column, column + width) of sums.
template <class Value, class Sum, Term kTerm>
struct BlockSum {
  const RowSums& sums;
  const Value* terms;
  int64_t columns, column, width;

  int64_t source(uint64_t key) const {
    const int64_t entry = sums.runs.entry_of(key);
    return sums.source_of ? sums.source_of[entry] : entry;
  }

  // Asks for what the entries behind `key` need, all of which lie before `end`.
  void look_ahead(const uint64_t* key, const uint64_t* end) const {
    if (end - key > 2 * kAhead && sums.source_of) prefetch_line(sums.source_of + sums.runs.entry_of(key[2 * kAhead]));
    if (end - key <= kAhead) return;
    prefetch_lines(terms + source(key[kAhead]) * columns + column, width * static_cast<int64_t>(sizeof(Value)));
  }

  static Sum widen(Value value) {
    if constexpr (std::is_arithmetic_v<Value>) return value;
    else return to_float(value);
  }

  // put(d, term of column d) for the columns of an entry.
  template <class Put>
  void each(uint64_t key, Put put) const {
    const int64_t entry = sums.runs.entry_of(key),
                  at = (sums.source_of ? sums.source_of[entry] : entry) * columns + column;
    const Value* row = terms + at;
    if constexpr (kTerm == Term::plain) {
      for (int64_t d = 0; d < width; ++d) put(d, widen(row[d]));
    } else if constexpr (kTerm == Term::scaled) {
      const Sum factor = static_cast<const Sum*>(sums.factors)[entry];
      for (int64_t d = 0; d < width; ++d) put(d, widen(row[d]) * factor);
    } else {
      const int64_t* chosen = sums.chosen + at;
      for (int64_t d = 0; d < width; ++d) put(d, chosen[d] == entry ? widen(row[d]) : static_cast<Sum>(kSumIdentity));
    }
  }

  // The term of an entry in place, if it is of the type of the sums and taken as it is; else null.
  const Sum* term_of(uint64_t key) const {
    if constexpr (kTerm == Term::plain && std::is_same_v<Value, Sum>) return terms + source(key) * columns + column;
    else return nullptr;
  }

  // The entries [first, last), at least one, all in the ranges [r0, r1), summed to `out`. `scratch` has kColumns
  // elements for each level of the tree below.
  void operator()(const uint64_t* first, const uint64_t* last, int64_t r0, int64_t r1, Sum* out, Sum* scratch) const {
    while (r1 - r0 > 1 && last - first > 1) {
      const int64_t middle = r0 + (r1 - r0 + 1) / 2;
      const uint64_t* split =
          std::partition_point(first, last, [&](uint64_t key) { return source(key) < middle * sums.grain; });
      if (split == last) r1 = middle;
      else if (split == first) r0 = middle;
      else {
        (*this)(first, split, r0, middle, out, scratch);
        (*this)(split, last, middle, r1, scratch, scratch + kColumns);
        for (int64_t d = 0; d < width; ++d) out[d] += scratch[d];
        return;
      }
    }
    each(*first, [&](int64_t d, Sum term) { out[d] = term; });
    while (++first != last) each(*first, [&](int64_t d, Sum term) { out[d] += term; });
  }
};

// Every row of `out` is a run or, where run_of says -1, nothing. Threads take blocks of rows and columns, so that few
// rows with many entries keep them all busy.
template <class Value, class Sum, Term kTerm, class RunOf>
void write(const RowSums& sums, const Tensor& out, int64_t work, RunOf run_of) {
  const int64_t rows = out.extents()[0], columns = out.extents()[1];
  if (out.numel() == 0) return;
  const int64_t sources = sums.terms.extents()[0], ranges = sources / sums.grain + (sources % sums.grain != 0);
  const size_t levels = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(ranges))) + 1;
  const int64_t row_blocks = (rows + kRows - 1) / kRows;
  int64_t block_columns = kColumns;
  const auto column_blocks_of = [&] { return (columns + block_columns - 1) / block_columns; };
  while (block_columns > kFewestColumns && row_blocks * column_blocks_of() < 4 * ThreadPool::current().threads())
    block_columns /= 2;
  const int64_t column_blocks = column_blocks_of();
  const int64_t blocks = row_blocks * column_blocks, block_work = work / blocks + 1;
  constexpr int64_t kVector = 32 / sizeof(Sum);
  const bool streamed =
      out.nbytes() >= kStreamed && columns % kVector == 0 && reinterpret_cast<uintptr_t>(out.raw_data()) % 32 == 0;
  ThreadPool::current().parallel_for(
      blocks, std::max<int64_t>(kParallelGrain / block_work, 1), [&](int64_t begin, int64_t end) {
        const uint64_t* const behind_all = sums.runs.first(sums.runs.count());
        Sum* const data = static_cast<Sum*>(out.raw_data());
        std::vector<Sum> scratch((levels + 1) * static_cast<size_t>(kColumns));
        for (int64_t block = begin; block < end; ++block) {
          const int64_t column = block / row_blocks * block_columns, width = std::min(block_columns, columns - column);
          const BlockSum<Value, Sum, kTerm> sum{sums, static_cast<const Value*>(sums.terms.raw_data()), columns, column,
                                                width};
          const int64_t first_row = block % row_blocks * kRows, last_row = std::min(first_row + kRows, rows);
          run_of(first_row, last_row, [&](int64_t row, int64_t run) {
            Sum* target = data + row * columns + column;
            Sum* place = streamed ? scratch.data() : target;
            const Sum* from = place;
            if (run < 0) {
              std::fill(place, place + width, static_cast<Sum>(kSumIdentity));
            } else {
              const uint64_t *first = sums.runs.first(run), *last = sums.runs.first(run + 1);
              sum.look_ahead(first, behind_all);
              const Sum* only = streamed && last - first == 1 ? sum.term_of(*first) : nullptr;
              if (only) from = only;
              else sum(first, last, 0, ranges, place, scratch.data() + kColumns);
            }
            if (streamed) stream(target, from, width);
          });
        }
        if (streamed) _mm_sfence();
      });
}

template <class Fn>
void with_types(const RowSums& sums, Fn fn) {
  visit_dtype(sums.terms.dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>) {
      using Sum = std::conditional_t<std::is_same_v<Value, double>, double, float>;
      if (sums.chosen) fn.template operator()<Value, Sum, Term::chosen>();
      else if (sums.factors) fn.template operator()<Value, Sum, Term::scaled>();
      else fn.template operator()<Value, Sum, Term::plain>();
    }
  });
}

}  // namespace

Tensor term_rows(const Tensor& grad) {
  const Tensor dense = to_contiguous(grad);
  const int64_t columns = dense.extents().back();
  int64_t rows = 1;
  for (int d = 0; d + 1 < dense.ndim(); ++d) rows *= dense.extents()[static_cast<size_t>(d)];
  return dense.view_as({rows, columns}, {columns, 1}, dense.offset());
}

void RowSums::write_rows(const Tensor& out) const {
  const int64_t entries = runs.first(runs.count()) - runs.first(0);
  with_types(*this, [&]<class Value, class Sum, Term kTerm>() {
    write<Value, Sum, kTerm>(*this, out, (out.extents()[0] + entries) * out.extents()[1],
                             [&](int64_t first, int64_t last, auto row) {
                               int64_t run = runs.find(first);
                               for (int64_t v = first; v < last; ++v) {
                                 const bool has = run < runs.count() && runs.row(run) == v;
                                 row(v, has ? run : -1);
                                 run += has;
                               }
                             });
  });
}

void RowSums::write_runs(const Tensor& out) const {
  const int64_t entries = runs.first(runs.count()) - runs.first(0);
  with_types(*this, [&]<class Value, class Sum, Term kTerm>() {
    write<Value, Sum, kTerm>(*this, out, (out.extents()[0] + entries) * out.extents()[1],
                             [&](int64_t first, int64_t last, auto row) {
                               for (int64_t i = first; i < last; ++i) row(i, i < runs.count() ? i : -1);
                             });
  });
}

}  // namespace tutti::facets
