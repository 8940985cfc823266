// ClickReadAhead: the click data of a run, of which a thread reads the next step's while the step before is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/train/task/click_source.h"

namespace tutti::train {

// Used by one thread, the rank's own.
class ClickReadAhead {
 public:
  // A step has `count` shards of so many rows.
  ClickReadAhead(std::unique_ptr<ClickSource> source, int64_t count, int64_t rows_per_shard);
  ~ClickReadAhead();

  // The rows of these shards of the next step, which ascend, and begins to read those of the step behind it. Errors of
  // ClickSource::read() come with the step that they are of.
  std::vector<ClickRows> next(std::span<const int64_t> shards);
  // ClickSource::position() behind the rows that next() has returned.
  const std::vector<int64_t>& position() const { return position_; }
  // Goes there, and forgets what was read ahead.
  void seek(int64_t row, const std::vector<int64_t>& position);

 private:
  struct Step;
  struct Ahead;  // the step that a thread reads
  Step read(std::vector<int64_t> shards);
  void begin(std::vector<int64_t> shards);

  const std::unique_ptr<ClickSource> source_;  // the thread's, while it reads
  const int64_t count_, rows_per_shard_;
  int64_t row_ = 0;  // of the run, behind what next() has returned
  std::vector<int64_t> position_;
  std::unique_ptr<Ahead> ahead_;
};

}  // namespace tutti::train
