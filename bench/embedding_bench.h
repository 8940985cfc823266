// `tutti bench embedding`: table-batched lookups and fused steps, in turns with a plain read of the rows they touch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct EmbeddingProblem {
  int64_t tables = 26;
  int64_t rows = 10'000'000;  // of the largest table; the others have fewer by equal factors, the smallest 10
  int64_t bags = 2048;        // of each table
  double skew = 1.0;          // 0: all rows are as likely; 1: the logarithm of a row's rank is uniform
  bool one_table = false;     // instead: one table of `rows` rows, 64 columns and bags of 20, beside embedding_bag()
  int threads = 1;
  bool codes = false;  // also lookups in tables of 8 and 4 bits
  double total_ms = 20'000;
  std::vector<std::string> only;  // kinds that are run beside `read`; empty: all
  std::string
      batch_folder;  // where indices.npy, offsets.npy and tables.npy (i64 [tables, 2]: rows, columns) are written
};

struct EmbeddingRow {
  std::string kind;  // read, forward, embedding_bag, int8, int4; and a forward with a step, by its optimizer
  Timing time;
  double gbytes = 0;      // of rows that are read or written, each time they are
  double read_share = 0;  // of the rate of `read`
};
struct EmbeddingResult {
  int64_t entries = 0, distinct_rows = 0, table_bytes = 0;
  std::vector<EmbeddingRow> rows;
  bool verified = false;  // lookups have the bits of embedding_bag(), and steps those of other threads
};
// Runs all ways in turns until `total_ms` are over, at least three rounds. The turn of a way is a call that brings what
// it needs into the caches, as if it ran alone, and five calls that are timed.
std::vector<Timing> measure_warm_turns(const std::vector<std::function<void()>>& ways, double total_ms);

// On the current pool.
EmbeddingResult run_embedding_bench(const EmbeddingProblem& problem);

}  // namespace tutti::bench
