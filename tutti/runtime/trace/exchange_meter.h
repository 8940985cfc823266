// How long a thread is in calls that bring data from rank to rank, or waits in them for other ranks.
//
//   ExchangeMeter meter;  // from here on, of this thread
//   train_step();
//   meter.total();
//
// Collectives, waits for those that run on, and waits in symmetric memory open an ExchangeSpan where the thread enters
// them; what they call counts once. A call that runs on while the thread computes counts only as long as the thread is
// in it. Without a meter on the thread a span costs one load.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/runtime/trace/trace_event.h"

namespace tutti {

// Used by the thread that made it; meters of a thread may be nested, and all of them count.
class ExchangeMeter {
 public:
  // `keeps_spans`: when each began and ended, on the clock of traces, for a timeline.
  explicit ExchangeMeter(bool keeps_spans = false) : outer_(innermost_), keeps_spans_(keeps_spans) {
    innermost_ = this;
  }
  ~ExchangeMeter() { innermost_ = outer_; }
  ExchangeMeter(const ExchangeMeter&) = delete;
  ExchangeMeter& operator=(const ExchangeMeter&) = delete;

  std::chrono::nanoseconds total() const { return std::chrono::nanoseconds(total_ns_); }
  const std::vector<std::pair<int64_t, int64_t>>& spans() const { return spans_; }

 private:
  friend class ExchangeSpan;
  void add(int64_t begin_ns, int64_t end_ns) {
    total_ns_ += end_ns - begin_ns;
    if (keeps_spans_) spans_.emplace_back(begin_ns, end_ns);
  }
  static inline thread_local ExchangeMeter* innermost_ = nullptr;

  ExchangeMeter* const outer_;
  const bool keeps_spans_;
  bool is_in_call_ = false;
  int64_t total_ns_ = 0;
  std::vector<std::pair<int64_t, int64_t>> spans_;
};

class ExchangeSpan {
 public:
  ExchangeSpan() : meter_(ExchangeMeter::innermost_) {
    if (meter_ == nullptr) [[likely]]
      return;
    if (std::exchange(meter_->is_in_call_, true)) meter_ = nullptr;  // a part of a call that counts already
    else begin_ns_ = trace_now_ns();
  }
  ~ExchangeSpan() {
    if (meter_ == nullptr) [[likely]]
      return;
    meter_->is_in_call_ = false;
    const int64_t end_ns = trace_now_ns();
    // An outer meter that is in a call counts all of that: this one was made in there.
    for (ExchangeMeter* meter = meter_; meter != nullptr; meter = meter->outer_) {
      if (!meter->is_in_call_) meter->add(begin_ns_, end_ns);
    }
  }
  ExchangeSpan(const ExchangeSpan&) = delete;
  ExchangeSpan& operator=(const ExchangeSpan&) = delete;

 private:
  ExchangeMeter* meter_;
  int64_t begin_ns_ = 0;
};

}  // namespace tutti
