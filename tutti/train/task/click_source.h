// ClickSource: the rows of click data that a configuration names, one after another, from files or generated.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/io/click_rows.h"
#include "tutti/train/config/config.h"

namespace tutti::train {

// Used by one thread.
class ClickSource {
 public:
  virtual ~ClickSource() = default;
  // The next `count` rows; of held-out data fewer at the end, then none. Errors are those of ClickReader.
  virtual ClickRows read(int64_t count) = 0;
  // Passes over rows. Returns their number, less at the end of held-out data.
  virtual int64_t skip(int64_t count) = 0;
  // The logits behind `count` rows that read() would return next, which is as good as a model can be; undefined where
  // nobody knows them.
  virtual Tensor true_logits(int64_t /*count*/) const { return {}; }
  // Where the next row is, if its number in the run does not say it; and goes there.
  virtual std::vector<int64_t> position() const { return {}; }
  virtual void seek(int64_t row, const std::vector<int64_t>& position) = 0;
};

// The columns of the configuration.
ClickColumns click_columns(const Config& config);

// The rows to train on, without end, and those that are held out. Held-out files are opened as their turn comes.
std::unique_ptr<ClickSource> open_training_clicks(const Config& config);
std::unique_ptr<ClickSource> open_held_out_clicks(const Config& config);

}  // namespace tutti::train
