#include "tutti/train/step/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tutti/core/error.h"

namespace tutti::train {

static const std::array<std::string, 3> kDecayNames{"linear", "sqrt", "cosine"};

std::span<const std::string> lr_decay_names() { return kDecayNames; }

LrDecay parse_lr_decay(std::string_view name) {
  const auto found = std::find(kDecayNames.begin(), kDecayNames.end(), name);
  TUTTI_CHECK(found != kDecayNames.end(), "{}", unknown_name_message("learning rate decay", name, kDecayNames));
  return static_cast<LrDecay>(found - kDecayNames.begin());
}

int64_t usual_warmup(int64_t total_steps) { return std::min<int64_t>(total_steps / 10, 200); }

LrSchedule::LrSchedule(const Options& options) : options_(options) {
  const int64_t total = options.total_steps;
  const int64_t warmup = options.warmup_steps;
  TUTTI_CHECK(total >= 1, "learning rate schedule over {} steps; expected 1 or more", total);
  TUTTI_CHECK(warmup >= 0 && warmup <= total,
              "learning rate warm-up of {} steps in a run of {} steps; lower lr_scheduler.warmup_steps", warmup, total);
  TUTTI_CHECK(options.min_factor >= 0 && options.min_factor <= 1, "smallest learning rate factor {}; expected 0 to 1",
              options.min_factor);
  decay_steps_ = total - warmup;
  if (options.decay_ratio) {
    TUTTI_CHECK(*options.decay_ratio >= 0 && *options.decay_ratio <= 1, "decay over {} of the run; expected 0 to 1",
                *options.decay_ratio);
    // Halves go to the even neighbour.
    const auto wanted = static_cast<int64_t>(std::nearbyint(static_cast<double>(total) * *options.decay_ratio));
    decay_steps_ = std::min(wanted, decay_steps_);
  }
  stable_steps_ = total + 1 - warmup - decay_steps_;
}

double LrSchedule::factor(int64_t step) const {
  TUTTI_CHECK(step >= 1, "learning rate at step {}; steps count from 1", step);
  const int64_t i = std::min(step, options_.total_steps) - 1;
  if (i < options_.warmup_steps) return static_cast<double>(i + 1) / static_cast<double>(options_.warmup_steps);
  const int64_t decay_start = options_.warmup_steps + stable_steps_;
  if (i < decay_start) return 1.0;
  const double progress = static_cast<double>(i + 1 - decay_start) / static_cast<double>(decay_steps_);
  double shape = 0;
  switch (options_.decay) {
    case LrDecay::kLinear:
      shape = 1.0 - progress;
      break;
    case LrDecay::kSqrt:
      shape = 1.0 - std::sqrt(progress);
      break;
    case LrDecay::kCosine:
      shape = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
      break;
  }
  return options_.min_factor + (1.0 - options_.min_factor) * shape;
}

}  // namespace tutti::train
