// Whether a function still reads the tensors that it held when it was traced.
//
// Nothing tells a compiled function that `w = w + 1` made a variable of its caller another tensor. So when something traced
// is used for the second time, the function runs once more on tensors without elements, and the Tensor objects through
// which it reads what it holds are noted (tensor/handle_watch.h). From then on losing one of them is counted, and that count is
// all that a call looks at. What loses none (a vector with room that grows, a pointer that leads elsewhere) is found
// by looking again at call 4, 8, 16, ...
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

// What a run of a function called, and what it read without having been given it.
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
  std::vector<int64_t> outcome;  // which of all these tensors it returns, and which get gradients or other memory

  static HeldReads of(Trace& trace);
};

// The watch over one traced run and all that was compiled from it. Any thread; look() one at a time.
class HeldWatch {
 public:
  // symbols: of a trace with symbolic sizes.
  explicit HeldWatch(HeldReads reads, std::optional<Symbols> symbols = {}) : reads_(std::move(reads)), symbols_(std::move(symbols)) {}

  // Counts a call. Whether the function has to be looked at before the call goes on.
  bool is_due() {
    calls_.fetch_add(1, std::memory_order_relaxed);
    return still_due();
  }
  bool still_due() const { return !is_sure() || calls_.load(std::memory_order_relaxed) >= next_look_.load(std::memory_order_relaxed); }
  // The function was looked at, and no Tensor object that it reads was lost since.
  bool is_sure() const { return looked_.load(std::memory_order_acquire) && !is_lost(); }
  bool is_lost() const { return is_over_.load(std::memory_order_acquire) || losses_->load(std::memory_order_acquire) != known_losses_.load(std::memory_order_acquire); }
  bool holds_nothing() const { return reads_.captured.empty(); }
  const std::optional<Symbols>& symbols() const { return symbols_; }

  struct Finding {
    std::string difference;  // "": the function reads what it read
    int64_t unseen_since = 0;  // calls since this one may have gone on with a tensor that was replaced; 0: none has
  };
  // trace: runs the function on stand-ins; nothing when it could not follow the function.
  Finding look(FunctionRef<std::optional<HeldReads>()> trace);

 private:
  std::string difference(const HeldReads& now) const;
  std::string replaced(const Captured& was, const Captured& now, bool was_there) const;

  const HeldReads reads_;
  const std::optional<Symbols> symbols_;
  std::vector<bool> is_there_;  // per captured tensor, at the last look: some Tensor object outside of the trace is it
  const std::shared_ptr<std::atomic<int64_t>> losses_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<int64_t> known_losses_{0};  // after which the function read the same
  std::atomic<bool> looked_{false}, is_over_{false};  // over: it reads something else
  std::atomic<int64_t> calls_{1}, next_look_{2};
  int64_t last_look_ = 1;
};

}  // namespace graph
}  // namespace tutti
