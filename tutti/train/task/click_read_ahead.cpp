#include "tutti/train/task/click_read_ahead.h"

#include <exception>
#include <thread>
#include <utility>

#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::train {

struct ClickReadAhead::Step {
  std::vector<int64_t> shards;
  std::vector<ClickRows> rows;
  std::vector<int64_t> position;  // behind it
};

struct ClickReadAhead::Ahead {
  ~Ahead() {
    if (thread.joinable()) thread.join();
  }
  Step step;
  std::exception_ptr error;
  std::thread thread;
};

ClickReadAhead::ClickReadAhead(std::unique_ptr<ClickSource> source, int64_t count, int64_t rows_per_shard)
    : source_(std::move(source)), count_(count), rows_per_shard_(rows_per_shard), position_(source_->position()) {}

ClickReadAhead::~ClickReadAhead() = default;

// Every rank passes over the rows of others, so that all stand at the same place behind the step.
ClickReadAhead::Step ClickReadAhead::read(std::vector<int64_t> shards) {
  const MemoryCategoryScope category(MemoryCategory::data);
  Step step{.shards = std::move(shards)};
  int64_t at = 0;  // the shard whose rows come next
  for (const int64_t s : step.shards) {
    source_->skip((s - at) * rows_per_shard_);
    step.rows.push_back(source_->read(rows_per_shard_));
    at = s + 1;
  }
  source_->skip((count_ - at) * rows_per_shard_);
  step.position = source_->position();
  return step;
}

void ClickReadAhead::begin(std::vector<int64_t> shards) {
  auto ahead = std::make_unique<Ahead>();
  ahead->thread =
      std::thread([this, shards = std::move(shards), ahead = ahead.get(), &context = RankContext::current()] {
        const RankContext::Scope scope(context);
        try {
          ahead->step = read(shards);
        } catch (...) {
          ahead->error = std::current_exception();
        }
      });
  ahead_ = std::move(ahead);
}

std::vector<ClickRows> ClickReadAhead::next(std::span<const int64_t> shards) {
  const std::vector<int64_t> wanted(shards.begin(), shards.end());
  if (ahead_ == nullptr) begin(wanted);
  const std::unique_ptr<Ahead> ahead = std::move(ahead_);
  ahead->thread.join();
  if (ahead->error) std::rethrow_exception(ahead->error);
  Step step = std::move(ahead->step);
  if (step.shards != wanted) {  // the ranks divide the shards in another way than they did
    source_->seek(row_, position_);
    step = read(wanted);
  }
  position_ = std::move(step.position);
  row_ += count_ * rows_per_shard_;
  begin(wanted);
  return std::move(step.rows);
}

void ClickReadAhead::seek(int64_t row, const std::vector<int64_t>& position) {
  ahead_.reset();
  source_->seek(row, position);
  row_ = row;
  position_ = position;
}

}  // namespace tutti::train
