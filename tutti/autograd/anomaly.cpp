#include "tutti/autograd/anomaly.h"

#include <cmath>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/core/number.h"
#include "tutti/runtime/trace/trace_context.h"
#include "tutti/tensor/host_read.h"

namespace tutti {
namespace {

thread_local bool is_on = false;
thread_local const autograd::Node* running = nullptr;

bool has_nan(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype()) || t.device().kind != DeviceKind::cpu || !t.storage()->has_memory())
    return false;
  if (HostReads::current() != nullptr) return false;  // a trace records what runs later
  const Tensor dense = to_contiguous(t);
  const int64_t item = itemsize(dense.dtype());
  const auto* bytes = static_cast<const char*>(dense.raw_data());
  for (int64_t i = 0; i < dense.numel(); ++i) {
    if (std::isnan(load_as_double(bytes + i * item, dense.dtype()))) return true;
  }
  return false;
}

std::string at(const std::string& line) { return line.empty() ? "" : " at " + line; }

std::string module_of(const TracePlace* place) {
  return place == nullptr || place->module_path.empty() ? "" : fmt::format(" in module '{}'", place->module_path);
}

[[noreturn]] void tell(const OpDef& op, size_t output, const Tensor& t) {
  std::string where;
  if (running != nullptr) {
    where = fmt::format(" in the backward of {}, which was called{}{}", running->name(),
                        running->site ? at(user_line(*running->site)) : "", module_of(running->place));
  } else {
    where = at(user_line(call_site())) + module_of(TraceContext::current().place);
  }
  throw NanError(
      fmt::format("{} made the first NaN, in its result {} ({}){}; its inputs have none. Look at the domain of {} "
                  "(0/0, inf - inf, log and sqrt of "
                  "negative numbers) and at the size of its inputs",
                  op.name, output, describe(t), where, op.name));
}

// Beside the kernels: it sees the ops of the backward as well.
class AnomalyStage final : public Stage {
 public:
  static StageMask mask() {
    static AnomalyStage stage;
    static const StageMask registered = register_stage("anomaly mode", StagePlace::kernels, &stage);
    return registered;
  }
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    const StageScope off(0, mask());
    bool known = false;  // what an op writes in place, or is told to be NaN, is looked at before it runs
    for (const Tensor& t : call.inputs) known = known || has_nan(t);
    apply(call.op, call.inputs, call.attrs, outputs);
    if (known || call.op.view != nullptr) return;
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (has_nan(outputs[k])) tell(call.op, k, outputs[k]);
    }
  }
};

}  // namespace

AnomalyScope::AnomalyScope()
    : stage_(AnomalyStage::mask(), 0),
      was_on_(std::exchange(is_on, true)),
      kept_places_(std::exchange(TraceContext::current().keeps_places, true)) {}

AnomalyScope::~AnomalyScope() {
  is_on = was_on_;
  TraceContext::current().keeps_places = kept_places_;
}

namespace autograd {

std::shared_ptr<const CallSite> site_in_anomaly_mode() {
  return is_on ? std::make_shared<const CallSite>(call_site()) : nullptr;
}

const Node* running_node() { return running; }

NodeScope::NodeScope(const Node& node) : previous_(std::exchange(running, &node)) {}
NodeScope::~NodeScope() { running = previous_; }

}  // namespace autograd
}  // namespace tutti
