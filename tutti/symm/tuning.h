// The tuning table: which algorithm an op uses for which sizes. It can be replaced by measured values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm::symm {

// For `op` on `ranks` ranks (0: any number), use `algorithm` for up to `max_bytes` per rank.
struct TuningRow {
  std::string op;
  int ranks = 0;
  int64_t max_bytes = 0;
  std::string algorithm;
};

class TuningTable {
 public:
  // Rows are searched in order. UsageError for an unknown op or algorithm.
  explicit TuningTable(std::vector<TuningRow> rows);
  // The built-in table.
  static const TuningTable& defaults();
  // Parses lines "op ranks max_bytes algorithm", where max_bytes may be "inf"; # begins a comment. UsageError, naming
  // the line, when one is malformed.
  static TuningTable parse(std::string_view text);
  std::string to_text() const;
  const std::vector<TuningRow>& rows() const { return rows_; }

  // The algorithm of the first matching row, or the op's last algorithm when no row matches.
  const std::string& choose(std::string_view op, int ranks, int64_t nbytes) const;

 private:
  std::vector<TuningRow> rows_;
};

// The table of this rank: TUTTI_SYMM_TUNING names a file, else the defaults. Read once per rank.
const TuningTable& tuning_table();
// Replaces the table of this rank; all ranks must use the same one. Must not be called while ops run on this rank.
void use_tuning_table(TuningTable table);
std::vector<std::string> algorithms_of(std::string_view op);

}  // namespace tutti::comm::symm
