// Detects whether a function still reads the captured tensors with which it was traced.
//
// A compiled function is not notified when `w = w + 1` replaces the tensor in a captured variable. So when a trace
// is used for the second time, the function is run again on tensors without elements, and the Tensor objects through
// which it reads captured tensors are recorded (tensor/handle_watch.h). From then on the loss of such an object is
// counted, and a call only needs to check that count. Changes in which no object is lost (a vector that grows within
// its capacity, a pointer that is redirected) are found by tracing again at calls 4, 8, 16, ... What a function reads
// through slots (tensor/tensor_slot.h) is compared at every call.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/graph/symbols.h"
#include "tutti/graph/trace.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {

class HandleNotes;

namespace graph {

// The calls of one run of a function, and the captured tensors that it read.
struct HeldReads {
  // Without numbers: a hash of which values it takes, and where it stands.
  struct Call {
    const char* op;
    size_t operands;
    std::shared_ptr<const CallSite> site;
  };
  size_t earlier = 0;  // a hash of the calls before the last read of elements
  std::vector<Call> calls;
  std::vector<Captured> captured;
  std::vector<SlotRead> slots;
  std::vector<int64_t> outcome;  // which of all these tensors it returns, and which get gradients or other memory

  static HeldReads of(Trace& trace);
};

// Watches one trace and everything compiled from it. May be used by any thread; calls of look() must not overlap.
class HeldWatch {
 public:
  // symbols: of a trace with symbolic sizes.
  explicit HeldWatch(HeldReads reads, std::optional<Symbols> symbols = {})
      : reads_(std::move(reads)), symbols_(std::move(symbols)) {}

  // Counts a call; returns whether look() is needed before the call continues.
  bool is_due() {
    calls_.fetch_add(1, std::memory_order_relaxed);
    return still_due();
  }
  bool still_due() const {
    return !is_sure() || calls_.load(std::memory_order_relaxed) >= next_look_.load(std::memory_order_relaxed);
  }
  // Whether look() has run and no Tensor object that the function reads has been lost since.
  bool is_sure() const { return looked_.load(std::memory_order_acquire) && !is_lost(); }
  bool is_lost() const {
    return holds_another() || is_over_.load(std::memory_order_acquire) ||
           losses_->load(std::memory_order_acquire) != known_losses_.load(std::memory_order_acquire);
  }
  bool holds_nothing() const { return reads_.captured.empty() && reads_.slots.empty(); }
  const std::optional<Symbols>& symbols() const { return symbols_; }

  struct Finding {
    std::string difference;    // "" when the function reads the same tensors
    int64_t unseen_since = 0;  // calls since this one may have used a tensor that had been replaced; 0: none
  };
  // trace: runs the function on stand-ins; nullopt when it could not follow the function.
  Finding look(FunctionRef<std::optional<HeldReads>()> trace);

 private:
  bool holds_another() const;
  std::string difference(const HeldReads& now) const;
  std::string replaced(const Captured& was, const Captured& now, bool was_there) const;

  const HeldReads reads_;
  const std::optional<Symbols> symbols_;
  std::vector<bool> is_there_;  // per captured tensor, at the last look: some Tensor object outside of the trace is it
  const std::shared_ptr<std::atomic<int64_t>> losses_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<int64_t> known_losses_{0};              // after which the function read the same
  std::atomic<bool> looked_{false}, is_over_{false};  // over: it reads something else
  std::atomic<int64_t> calls_{1}, next_look_{2};
  int64_t last_look_ = 1;
};

}  // namespace graph
}  // namespace tutti
