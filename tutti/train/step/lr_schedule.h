// The learning rate schedule: linear warm-up, a constant part, decay.
//
// With warm-up w, total N, decay D = round(N * decay_ratio), or N - w without a ratio, clipped so that w + D <= N, and
// flat part S = N + 1 - w - D, the factor on the base rate at step s (counted from 1, i = s - 1) is
//   i < w       (i + 1) / w
//   i < w + S   1
//   else        m + (1 - m) f(p), p = (i + 1 - (w + S)) / D, with f one of 1 - p, 1 - sqrt(p), (1 + cos(pi p)) / 2
// and m the smallest factor. The schedule depends on the step only, so a run can be resumed from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::train {

enum class LrDecay { kLinear, kSqrt, kCosine };

// "linear", "sqrt" or "cosine". UsageError, suggesting the nearest name, for anything else.
LrDecay parse_lr_decay(std::string_view name);
std::span<const std::string> lr_decay_names();

// The warm-up of a run that names none: a tenth of its steps, but at most 200.
int64_t usual_warmup(int64_t total_steps);

class LrSchedule {
 public:
  struct Options {
    int64_t warmup_steps = 0;
    int64_t total_steps = 1;
    std::optional<double> decay_ratio = std::nullopt;  // fraction of all steps, 0 to 1
    LrDecay decay = LrDecay::kLinear;
    double min_factor = 0.0;  // 0 to 1
  };

  // UsageError when a value is out of range or the warm-up is longer than the run.
  explicit LrSchedule(const Options& options);

  // The factor on the base rate at step 1, 2, ...; after the last step it keeps the final value of the decay.
  double factor(int64_t step) const;
  int64_t decay_steps() const { return decay_steps_; }

 private:
  Options options_;
  int64_t decay_steps_;
  int64_t stable_steps_;
};

}  // namespace tutti::train
