// [metrics]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> metrics_keys() {
  return {
      {TUTTI_KEY(metrics, bool, tensorboard, true), .doc = "write a TensorBoard event file", .unit = ""},
      {TUTTI_KEY(metrics, bool, report, true), .doc = "write report.html", .unit = ""},
      {TUTTI_KEY(metrics, double, peak_gflops, 0),
       .doc = "peak performance of this machine, from which mfu is computed; 0: unknown", .unit = "GFLOP/s",
       .rule = at_least(0)},
  };
}

}  // namespace

TUTTI_SECTION(metrics, MetricsConfig, 11) = {
    .name = "metrics",
    .doc = "Recorded metrics.",
    .keys = metrics_keys,
};

}  // namespace tutti::train
