#include "tutti/plan/passes/batch.h"

#include <algorithm>
#include <set>

#include "tutti/plan/passes/pass_state.h"
#include "tutti/plan/touch.h"

namespace tutti::graph {
namespace {

class Batcher {
 public:
  Batcher(const Graph& graph, const char* graph_key) : graph_(graph), graph_key_(graph_key) {}

  std::vector<Step> run(std::vector<Step> steps) {
    for (Step& step : steps) {
      if (auto* kernel = std::get_if<KernelStep>(&step)) {
        add(std::move(*kernel));
        continue;
      }
      flush();
      note_call(std::get<CallStep>(step));
      made_.push_back(std::move(step));
    }
    flush();
    return std::move(made_);
  }

 private:
  void add(KernelStep kernel) {
    constexpr size_t kMaxKernels = 256;
    const std::vector<Touch> touches = touches_of(kernel);
    bool waits = false;
    for (const Touch& t : touches) waits = under_way_.erase(t.buffer) > 0 || waits;
    const bool meets = std::any_of(touches.begin(), touches.end(), [&](const Touch& mine) {
      return std::any_of(touched_.begin(), touched_.end(), [&](const Touch& other) { return mine.meets(other); });
    });
    if (waits || meets || (may_fail_ && writes_given(kernel)) || !is_light(kernel) || kernels_.size() == kMaxKernels)
      flush();
    may_fail_ = may_fail_ || kernel.reporter >= 0;
    touched_.insert(touched_.end(), touches.begin(), touches.end());
    const bool light = is_light(kernel);
    kernels_.push_back(std::move(kernel));
    if (!light) flush();
  }

  bool is_light(const KernelStep& kernel) const {
    constexpr double kSmallBytes = 1 << 20;
    if (!kernel.keyed.empty()) return false;
    return kernel.bytes <= kSmallBytes || writes_nothing_else(kernel);
  }

  bool is_given(const OperandPlace& place) const {
    return graph_.buffers[static_cast<size_t>(place.buffer)].kind == Buffer::Kind::given;
  }
  bool writes_given(const KernelStep& kernel) const {
    const auto first = kernel.operands.begin() + static_cast<std::ptrdiff_t>(kernel.spec.inputs.size());
    return std::any_of(first, kernel.operands.end(), [&](const OperandPlace& p) { return is_given(p); });
  }
  // Than given memory.
  bool writes_nothing_else(const KernelStep& kernel) const {
    const auto first = kernel.operands.begin() + static_cast<std::ptrdiff_t>(kernel.spec.inputs.size());
    return std::all_of(first, kernel.operands.end(), [&](const OperandPlace& p) { return is_given(p); });
  }

  void note_call(const CallStep& call) {
    for (const auto* values : {&call.inputs, &call.outputs}) {
      for (const Value& v : *values) under_way_.erase(v.buffer);
    }
    if (!call.op->ordered || call.check_only) return;
    for (const Value& v : call.outputs) under_way_.insert(v.buffer);
  }

  void flush() {
    if (kernels_.size() == 1) made_.push_back(std::move(kernels_[0]));
    else if (!kernels_.empty()) made_.emplace_back(make_batch(std::move(kernels_), graph_key_));
    kernels_.clear();
    touched_.clear();
    may_fail_ = false;
  }

  const Graph& graph_;
  const char* graph_key_;
  std::vector<Step> made_;
  std::vector<KernelStep> kernels_;  // of the batch that grows
  std::vector<Touch> touched_;       // by it
  bool may_fail_ = false;            // one of them can report an error: all of them have run then
  std::set<int32_t> under_way_;      // buffers that a collective may still write
};

}  // namespace

void batch(PassState& state) { state.steps = Batcher(state.graph, state.graph_key).run(std::move(state.steps)); }

}  // namespace tutti::graph
