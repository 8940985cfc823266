// Which algorithm an op takes for how many bytes: a small table that a measurement can replace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm::symm {

// For `op` on `ranks` ranks (0: any number), `algorithm` is the best up to `max_bytes` per rank.
struct TuningRow {
  std::string op;
  int ranks = 0;
  int64_t max_bytes = 0;
  std::string algorithm;
};

class TuningTable {
 public:
  // Rows are looked at in order; UsageError when an op or algorithm is unknown.
  explicit TuningTable(std::vector<TuningRow> rows);
  // What was measured when this table was written.
  static const TuningTable& defaults();
  // Lines "op ranks max_bytes algorithm", max_bytes "inf" without limit; # begins a comment. UsageError naming the line.
  static TuningTable parse(std::string_view text);
  std::string to_text() const;
  const std::vector<TuningRow>& rows() const { return rows_; }

  // The first row that fits; the op's last algorithm when none does.
  const std::string& choose(std::string_view op, int ranks, int64_t nbytes) const;

 private:
  std::vector<TuningRow> rows_;
};

// The table of this rank: TUTTI_SYMM_TUNING names a file, else the defaults. Read once per rank.
const TuningTable& tuning_table();
// Takes another one from here on; all ranks must take the same. Not while ops run on this rank.
void use_tuning_table(TuningTable table);
std::vector<std::string> algorithms_of(std::string_view op);

}  // namespace tutti::comm::symm
