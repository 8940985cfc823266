// How the numbers of a record are named where they are written and shown: keys, tags and units, by kind of model.
#pragma once

#include <optional>
#include <span>

#include "tutti/train/report/metrics.h"

namespace tutti::train {

// What a model is trained on piece by piece.
struct ItemWords {
  const char *item, *items;         // "token", "tokens"
  const char *seen_key, *rate_key;  // of metrics.jsonl
  const char* rate;                 // "tok/s"
};
const ItemWords& words_of(ModelKind model);

// A number that is measured on held-out data. The first of a kind of model is the one that the report begins with.
struct HeldOutMetric {
  ModelKind model;
  std::optional<double> StepRecord::* value;
  const char* key;       // of metrics.jsonl
  const char* tag;       // of TensorBoard
  const char* status;    // as the line of a step says it, with a place for the value
  const char* title;     // of its plot
  const char* unit;      // "bits per byte"
  const char* data;      // "held-out text"
  const char* baseline;  // what Task::baseline() is, for the plot; null: there is none
  const char* compared;  // and in "0.2 below an order-2 model"
  int digits;
};
std::span<const HeldOutMetric> held_out_metrics();

}  // namespace tutti::train
