#include "tutti/train/report/record_words.h"

namespace tutti::train {

const ItemWords& words_of(ModelKind model) {
  static constexpr ItemWords kWords[] = {
      {"token", "tokens", "tokens_seen", "tokens_per_s", "tok/s"},
      {"sample", "samples", "samples_seen", "samples_per_s", "samples/s"},
  };
  return kWords[static_cast<int>(model)];
}

std::span<const HeldOutMetric> held_out_metrics() {
  static constexpr HeldOutMetric kMetrics[] = {
      {ModelKind::language, &StepRecord::val_bits_per_byte, "val_bits_per_byte", "validation/bits_per_byte",
       "{:.3f} bits/byte", "Validation", "bits per byte", "held-out text", "order-2 byte model", "an order-2 model", 3},
      {ModelKind::clicks, &StepRecord::val_auc, "val_auc", "validation/auc", "AUC {:.4f}", "Validation", "AUC",
       "held-out rows", "best possible on these rows", "the best possible one", 4},
      {ModelKind::clicks, &StepRecord::val_calibration, "val_calibration", "validation/calibration",
       "calibration {:.3f}", "Calibration", "predicted clicks divided by clicks", "held-out rows", nullptr, nullptr, 3},
      {ModelKind::clicks, &StepRecord::val_loss, "val_loss", "validation/loss", "loss {:.4f}", "Validation loss",
       "nats per sample", "held-out rows", nullptr, nullptr, 4},
  };
  return kMetrics;
}

}  // namespace tutti::train
