// Where two runs diverge: compares settings, losses and gradient norms step by step, and checkpoint tensors element by
// element.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"

namespace tutti::train {

// `a` and `b` are the values as text: hexadecimal floats, which hold every bit, or TOML.
struct SettingDifference {
  std::string key;   // section.key
  std::string a, b;  // "no such key" where a version of the program does not have it
  bool may_change_numbers = false;
};

struct NumberDifference {
  int64_t step = 0;
  std::string what;  // "loss", "grad_norm", or the key of a held-out metric (report/record_words.h)
  std::string a, b;
  uint64_t ulps = 0;
};

struct TensorDifference {
  int64_t step = 0;  // step of the checkpoint
  std::string name;
  std::string shapes;  // dtype and shape of both where they differ, or in which of the two it is missing; else empty
  DType dtype = DType::f32;
  Extents element = {};              // index of the first element that differs,
  std::string a, b;                  // its values,
  uint64_t ulps = 0;                 // and their distance in ULP
  int64_t differing = 0, numel = 0;  // how many elements differ, of how many
  uint64_t most_ulps = 0;
  // |a - b| / |a| with Euclidean norms; infinite for other shapes, for NaNs that only one has, and where only a is all
  // zeros.
  double distance = std::numeric_limits<double>::infinity();
};

struct RunDiff {
  std::vector<SettingDifference> settings;    // of their resolved configurations, or of their checkpoints
  std::vector<int64_t> steps;                 // in the metrics of both, ascending
  std::vector<int64_t> only_in_a, only_in_b;  // steps in the metrics of one of them
  std::optional<NumberDifference> number;     // at the first step where one differs
  std::vector<int64_t>
      checkpoints;  // steps of the checkpoints that were compared, ascending, up to the first that differs
  std::vector<int64_t> checkpoints_only_in_a,
      checkpoints_only_in_b;  // steps of the checkpoints of one of two runs, ascending
  int64_t tensors = 0;        // compared, in all of them
  std::vector<TensorDifference>
      differing;  // tensors of the first checkpoint where some differ, the farthest apart first

  bool same_bits() const { return !number && differing.empty(); }
};

// Each of the two is a run folder, a folder of checkpoints, one checkpoint, a .safetensors file or a metrics.jsonl.
// The common part of both is compared: numbers of equal steps, and checkpoints of equal steps. UsageError when that is
// nothing, and for paths that are none of these; EnvironmentError for files that cannot be read.
RunDiff compare_runs(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace tutti::train
