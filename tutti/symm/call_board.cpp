#include "tutti/symm/call_board.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/errors.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/connection.h"
#include "tutti/symm/handle.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm::symm {
namespace {

constexpr uint64_t kEnded = std::numeric_limits<uint64_t>::max();
constexpr size_t kTextBytes = 2000;

void copy_text(char (&to)[kTextBytes], std::string_view text) {
  const size_t length = std::min(text.size(), kTextBytes - 1);
  std::copy_n(text.data(), length, to);
  to[length] = 0;
}

}  // namespace

struct alignas(64) CallBoard::Line {
  std::atomic<uint64_t> step;  // written last; kEnded when the rank's board has ended
  uint64_t word;
};

struct CallBoard::Area {
  Line lines[2];
  OpRecord records[2];
  bool refused_by_usage[2];
  char refusals[2][kTextBytes];
  char failure[kTextBytes];
  int64_t numbers[];  // W per line
};

CallBoard::CallBoard(const SymmGroup& group)
    : group_(group.name()),
      timeout_(group.timeout()),
      rank_(group.rank()),
      size_(group.size()),
      areas_(static_cast<size_t>(size_)) {
  // Made for no group: it is not among the allocations whose order the ranks compare.
  memory_ =
      empty_symm({static_cast<int64_t>(sizeof(Area)) + 2 * size_ * 8}, DType::u8, kCpu, {.backend = group.backend()});
  handle_ = rendezvous_for("the first op", memory_, group);
  for (int r = 0; r < size_; ++r) areas_[static_cast<size_t>(r)] = handle_->data(r);
}

CallBoard::Line& CallBoard::line(int rank) const { return area(rank).lines[step_ & 1]; }

std::string CallBoard::title() const {
  return fmt::format("symmetric memory op #{} of group '{}' ({} ranks)", ops_, group_, size_);
}

void CallBoard::begin_op() {
  if (process_.is_in_child()) [[unlikely]]
    process_.check(title());
  if (!failure_.empty()) throw PeerError(failure_);
  ++ops_;
}

void CallBoard::agree(const OpRecord& record, std::span<const int64_t> numbers) {
  next_meeting();
  record_ = record;
  Area& own = area(rank_);
  own.records[step_ & 1] = record;
  std::copy(numbers.begin(), numbers.end(), own.numbers + static_cast<int64_t>(step_ & 1) * size_);
  come((record.fingerprint() | 7) - 1);
}

std::span<const int64_t> CallBoard::numbers_of(int rank) const {
  return {area(rank).numbers + static_cast<int64_t>(step_ & 1) * size_, static_cast<size_t>(size_)};
}

void CallBoard::meet() {
  next_meeting();
  come(kMet);
}

void CallBoard::refuse(const OpRecord& record, const std::exception& why) {
  next_meeting();
  record_ = record;
  Area& own = area(rank_);
  own.records[step_ & 1] = record;
  own.refused_by_usage[step_ & 1] = dynamic_cast<const UsageError*>(&why) != nullptr;
  copy_text(own.refusals[step_ & 1], why.what());
  publish(kRefused);
  has_refused_ = true;
}

void CallBoard::fail(std::string_view why) {
  if (!failure_.empty()) return;
  failure_ = fmt::format("{}: {}; make another group to go on", title(), why);
  Area& own = area(rank_);
  copy_text(own.failure, failure_);
  for (Line& line : own.lines) line.step.store(kEnded, std::memory_order_seq_cst);
  ring_all();
}

// ---- a meeting ------------------------------------------------------------------------------------------------------

// What stands in the line of the meeting after the next must have been read: so all have come to the last one.
void CallBoard::next_meeting() {
  if (has_refused_) wait_for_all();
  has_refused_ = false;
  ++step_;
}

void CallBoard::publish(uint64_t word) {
  Line& own = line(rank_);
  own.word = word;
  own.step.store(step_, std::memory_order_seq_cst);
  ring_all();
}

void CallBoard::ring_all() {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) handle_->connection()->pads->ring(r);
  }
}

void CallBoard::wait_for_all() {
  const auto has_come = [this](int r) { return line(r).step.load(std::memory_order_seq_cst) >= step_; };
  int next = 0;
  const auto is_met = [&] {
    while (next < size_ && has_come(next)) ++next;
    return next == size_;
  };
  const auto late = [&] {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
      if (!has_come(r)) ranks.push_back(r);
    }
    return ranks;
  };
  if (is_met()) return;
  try {
    handle_->connection()->pads->wait([this] { return fmt::format("op #{}, {}", ops_, describe(record_)); },
                                      deadline_after(timeout_), is_met, late);
  } catch (const Error& error) {
    fail(error.what());
    throw;
  }
}

void CallBoard::come(uint64_t word) {
  publish(word);
  wait_for_all();
  bool same = true;
  for (int r = 0; r < size_; ++r) {
    const Line& said = line(r);
    same &= said.word == word && said.step.load(std::memory_order_relaxed) == step_;
  }
  if (!same) [[unlikely]]
    explain();
}

void CallBoard::explain() {
  std::vector<OpRecord> records;
  for (int r = 0; r < size_; ++r) {
    if (line(r).step.load(std::memory_order_acquire) == kEnded) {
      const std::string why = area(r).failure;
      if (failure_.empty()) fail(why);
      throw PeerError(why);
    }
    records.push_back(area(r).records[step_ & 1]);
  }
  for (int r = 0; r < size_; ++r) {
    if (line(r).word != kRefused) continue;
    const std::string text =
        fmt::format("{}: rank {} refused its call {}, where rank {} called {}: {}", title(), r,
                    describe(records[static_cast<size_t>(r)]), rank_, describe(record_), area(r).refusals[step_ & 1]);
    if (area(r).refused_by_usage[step_ & 1]) throw UsageError(text);
    throw PeerError(text);
  }
  throw UsageError(fmt::format("{}: {}", title(), mismatch_text(records)));
}

}  // namespace tutti::comm::symm
