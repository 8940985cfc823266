// Measured costs of the steps of redistributions, from a file that the user names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "tutti/dist/step_kind.h"

namespace tutti::dist {

// A call of a collective: what it costs for itself, and what it moves in a microsecond.
struct StepCost {
  double latency = 3;  // in microseconds
  double bytes_per_us = 5000;
  double of(double bytes) const { return latency + bytes / bytes_per_us; }
};

// Costs that were measured, by transport, kind of step and number of ranks. `tutti bench comm --costs FILE` writes
// them.
class MeasuredCosts {
 public:
  // Lines of "transport step ranks latency_us bytes_per_us", and comments after '#'. UsageError naming the line and
  // what is wrong with it: an unknown step, numbers that are none or not positive, a row that stands twice, no rows at
  // all.
  static MeasuredCosts parse(std::string_view text);
  // Reads a file of at most 1 MiB. UsageError and EnvironmentError as above, naming the file.
  static MeasuredCosts read(const std::string& path);
  std::string to_text() const;

  // Replaces the row of that transport, step and number of ranks, or adds it.
  void set(const std::string& transport, StepKind kind, int64_t ranks, StepCost cost);
  void set(const MeasuredCosts& others);
  // The row for the nearest number of ranks that was measured, the larger of two; null: this step was not measured over
  // that transport.
  const StepCost* find(std::string_view transport, StepKind kind, int64_t ranks) const;
  size_t size() const { return rows_.size(); }

 private:
  std::map<std::tuple<std::string, StepKind, int64_t>, StepCost> rows_;
};

// The measured costs that TUTTI_DTENSOR_COSTS names on this rank, as text; "": the variable is unset. Errors of reading
// it are kept as text, too, so that the ranks of a mesh can tell each other.
std::string costs_of_environment();
// The costs of a text from costs_of_environment(), maybe of another rank: null for "". The errors of
// MeasuredCosts::read().
std::shared_ptr<const MeasuredCosts> costs_from(const std::string& text);

}  // namespace tutti::dist
