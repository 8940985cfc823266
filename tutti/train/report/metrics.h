// metrics.jsonl: the metrics of every step, one JSON object per line.
//
// Keys: numerics_version, step, loss, loss_hex, grad_norm, grad_norm_hex, lr, tokens_seen, tokens_per_s, tflops, mfu
// (percent; null when the peak of the machine is unknown), step_ms, data_ms, comm_ms, memory_peak_bytes, product_flops,
// sent_bytes, and val_bits_per_byte on steps that were validated. Click models have samples_seen, samples_per_s,
// val_loss, val_auc and val_calibration instead (record_words.h). A step that follows the loss of ranks has lost_ranks,
// an array of objects with the keys rank, pid, host, step (in which it was lost), and seconds_lost, until the others
// went on (docs/surviving.md). A model with experts adds `experts`, a list with an object for each layer of them
// (expert_load.h). The _hex values are C hex floats: they hold every bit, so two runs can be compared as text. NaN and
// infinity are null in JSON; the hex value tells which.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/numerics_version.h"
#include "tutti/train/config/model_kind.h"
#include "tutti/train/step/expert_load.h"

namespace tutti::train {

// A rank that was lost in a run that went on without it.
struct LostRank {
  int64_t rank = 0, pid = 0;
  std::string host;
  int64_t step = 0;         // in which it was lost
  double seconds_lost = 0;  // by the others, until they went on: with what they had computed of a step that is repeated
  bool operator==(const LostRank&) const = default;
};

struct StepRecord {
  int numerics_version = kNumericsVersion;
  int64_t step = 0;  // from 1
  ModelKind model = ModelKind::language;
  float loss = 0;  // mean over the valid labels of the global batch, in nats
  double grad_norm = 0;
  double lr = 0;
  int64_t items_seen = 0;  // tokens, or samples of a click model
  double items_per_s = 0;
  double tflops = 0;
  std::optional<double> mfu = std::nullopt;  // percent
  double step_ms = 0;
  double data_ms = 0;
  double comm_ms = 0;
  // The memory, operations and sent bytes of rank 0; 0 in lines of versions that did not measure it.
  int64_t memory_peak_bytes = 0;
  int64_t product_flops = 0;  // of matrix products, attention included
  int64_t sent_bytes = 0;     // given to transports for other ranks
  // On held-out data (record_words.h).
  std::optional<double> val_bits_per_byte = std::nullopt;
  std::optional<double> val_loss = std::nullopt, val_auc = std::nullopt, val_calibration = std::nullopt;
  std::vector<ExpertLoad> experts = {};   // by layer of experts
  std::vector<LostRank> lost_ranks = {};  // since the step before
};

// C hex float, as printf("%a"): "0x1.8p+1".
std::string hex_float(double value);

// One line, without the newline.
std::string to_json(const StepRecord& record);
// Parses one line. UsageError, naming `where`, when it is not such a record.
StepRecord parse_record(std::string_view line, std::string_view where);

// All records of a file in order. An incomplete last line (without newline, because the writer was killed) is skipped.
std::vector<StepRecord> read_metrics(const std::filesystem::path& path);

// Appends to a metrics file. Belongs to one thread of rank 0.
class MetricsWriter {
 public:
  // Keeps the records up to `resumed_step` (0: none) and drops later ones, which an interrupted run wrote after its
  // checkpoint.
  MetricsWriter(std::filesystem::path path, int64_t resumed_step);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // When this returns, the line has been written to the operating system. EnvironmentError when the disk is full.
  void write(const StepRecord& record);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace tutti::train
