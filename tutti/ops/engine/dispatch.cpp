#include "tutti/ops/engine/dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/ops/engine/launch.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/overlap.h"
#include "tutti/tensor/rebind.h"

namespace tutti {
namespace {

thread_local StageMask thread_added = 0;
thread_local StageMask thread_removed = 0;

constexpr int kPlaces = static_cast<int>(StagePlace::autograd) + 1;
static_assert(kPlaces * kStagesPerPlace == 8 * sizeof(StageMask));

struct RegisteredStage {
  std::atomic<Stage*> stage{nullptr};
  const char* name = nullptr;  // written before `stage`
};
using StageTable = std::array<RegisteredStage, kPlaces * kStagesPerPlace>;

StageTable& stages() {
  static StageTable table{};
  return table;
}

void allocate_outputs(const OpCall& call, const OutputMetas& metas, std::span<Tensor> outputs) {
  const Device device = call.inputs.empty() ? kCpu : call.inputs[0].device();
  for (int k = 0; k < metas.count; ++k) {
    const int written = call.op.writes[k];
    outputs[static_cast<size_t>(k)] = written >= 0
                                          ? call.inputs[static_cast<size_t>(written)]
                                          : Tensor::empty(concrete(metas.meta[k].sizes), metas.meta[k].dtype, device);
  }
}

// The inputs of a call that writes, with a copy in the place of each that the write would change before it is read:
// loops run in vectors and on threads, in no order. Empty when there is none.
std::vector<Tensor> untangled(const OpCall& call) {
  std::vector<Tensor> inputs;
  for (const int8_t written : call.op.writes) {
    if (written < 0) continue;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (static_cast<int>(i) == written || !is_tangled(call.inputs[static_cast<size_t>(written)], call.inputs[i]))
        continue;
      if (inputs.empty()) inputs.assign(call.inputs.begin(), call.inputs.end());
      inputs[i] = clone_to(call.inputs[i], call.inputs[i].device());
    }
  }
  return inputs;
}

[[noreturn, gnu::cold]] void refuse_undefined(const OpDef& op, std::span<const Tensor> inputs) {
  const auto missing = std::find_if(inputs.begin(), inputs.end(), [](const Tensor& t) { return !t.defined(); });
  throw UndefinedTensorError(
      fmt::format("{}: input {} of {} is an undefined tensor: it was never assigned, was moved from, or is the "
                  "gradient of a tensor that nothing "
                  "depends on; ask defined() first",
                  op.name, missing - inputs.begin(), inputs.size()));
}

}  // namespace

void begin_writes(const OpCall& call) {
  const auto for_each_target = [&](auto visit) {
    for (const int8_t written : call.op.writes) {
      if (written >= 0) visit(call.inputs[static_cast<size_t>(written)]);
    }
  };
  for_each_target([&](const Tensor& target) {
    TUTTI_CHECK(!target.storage()->is_read_only(),
                "{}: the tensor {} is read-only memory and cannot be written; clone() it", call.op.name,
                describe(target));
    refuse_overlap(call.op.name, target);
  });
  for_each_target([](const Tensor& target) { target.storage()->bump_version(); });
}

void finish_rebinding(const OpCall& call, std::span<const Tensor> outputs) {
  for (size_t k = 0; k < outputs.size() && k < kMaxOutputs; ++k) {
    if (call.op.becomes[k] >= 0) rebind(call.inputs[static_cast<size_t>(call.op.becomes[k])], outputs[k]);
  }
}

bool is_tangled(const Tensor& target, const Tensor& x) {
  if (x.storage().get() != target.storage().get() || x.numel() == 0 || target.numel() == 0) return false;
  if (x.offset() == target.offset() && x.dtype() == target.dtype() && x.extents() == target.extents() &&
      x.strides() == target.strides())
    return false;
  const auto range = [](const Tensor& t) {
    std::pair<int64_t, int64_t> elements{t.offset(), t.offset()};
    for (size_t d = 0; d < t.strides().size(); ++d) {
      const int64_t reach = t.strides()[d] * (t.extents()[d] - 1);
      (reach < 0 ? elements.first : elements.second) += reach;
    }
    return std::pair{elements.first * itemsize(t.dtype()), (elements.second + 1) * itemsize(t.dtype())};
  };
  const auto a = range(target), b = range(x);
  return a.first < b.second && b.first < a.second;
}

StageMask register_stage(const char* name, StagePlace place, Stage* stage) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const RegisteredStage& known : stages()) {
    TUTTI_CHECK(known.stage.load() == nullptr || std::string_view(known.name) != name,
                "register_stage: a stage '{}' is registered already; give each stage a name of its own", name);
  }
  // Downwards, because calls pass the stages from the highest bit down.
  for (int k = kStagesPerPlace - 1; k >= 0; --k) {
    const int bit = static_cast<int>(place) * kStagesPerPlace + k;
    RegisteredStage& slot = stages()[static_cast<size_t>(bit)];
    if (slot.stage.load() != nullptr) continue;
    slot.name = name;
    slot.stage.store(stage, std::memory_order_release);
    return static_cast<StageMask>(1u << bit);
  }
  throw UsageError(fmt::format("register_stage: '{}' finds no room: its place holds {} stages at most, and has {}",
                               name, kStagesPerPlace, stage_names(mask_of(place))));
}

std::string stage_names(StageMask mask) {
  std::string names;
  for (int bit = kPlaces * kStagesPerPlace - 1; bit >= 0; --bit) {
    const RegisteredStage& known = stages()[static_cast<size_t>(bit)];
    if ((mask >> bit & 1) == 0 || known.stage.load(std::memory_order_acquire) == nullptr) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

StageScope::StageScope(StageMask add, StageMask remove) : added_(thread_added), removed_(thread_removed) {
  thread_added = static_cast<StageMask>(thread_added | add);
  thread_removed = static_cast<StageMask>(thread_removed | remove);
}
StageScope::~StageScope() {
  thread_added = added_;
  thread_removed = removed_;
}
StageMask removed_stages() { return thread_removed; }
ReplaceRemovedScope::ReplaceRemovedScope(StageMask removed) : previous_(std::exchange(thread_removed, removed)) {}
ReplaceRemovedScope::~ReplaceRemovedScope() { thread_removed = previous_; }

void apply(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs, std::span<Tensor> outputs) {
  StageMask mask = thread_added;
  for (const Tensor& t : inputs) {
    if (!t.defined()) [[unlikely]]
      refuse_undefined(op, inputs);
    mask |= t.stages();
  }
  mask &= static_cast<StageMask>(~thread_removed);
  const OpCall call{op, inputs, attrs};
  if (mask == 0) [[likely]] {
    run_eager(call, outputs);
    return;
  }
  const int bit = std::bit_width(mask) - 1;
  Stage* stage = stages()[static_cast<size_t>(bit)].stage.load(std::memory_order_acquire);
  TUTTI_ASSERT(stage != nullptr, "a tensor carries stage bit {}, which nobody registered", bit);
  stage->handle(call, outputs);
}

Tensor apply1(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs) {
  Tensor output;
  apply(op, inputs, attrs, {&output, 1});
  return output;
}

void run_eager(const OpCall& call, std::span<Tensor> outputs) {
  const FpEnvironmentScope environment;
  const OpDef& op = call.op;
  const TraceSpan span(TraceCategory::op, op.name);
  check_devices(call);
  if (op.view) {
    outputs[0] = op.view(call);
    finish_rebinding(call, outputs);
    return;
  }
  OutputMetas metas;
  op.infer(call, metas);
  if (op.check) engine_of(call, outputs).check(call);
  begin_writes(call);
  allocate_outputs(call, metas, outputs);
  const std::vector<Tensor> own = untangled(call);
  const OpCall apart{op, own.empty() ? call.inputs : std::span<const Tensor>(own), call.attrs};
  launch_call(apart, outputs);
  finish_rebinding(call, outputs);
  Boundary::pass();
}

#ifndef TUTTI_RUNTIME_ONLY  // which has no references
void run_reference(const OpCall& call, std::span<Tensor> outputs) {
  OutputMetas metas;
  call.op.infer(call, metas);
  TUTTI_ASSERT(call.op.reference != nullptr, "{} has no reference kernel", call.op.name);
  begin_writes(call);
  allocate_outputs(call, metas, outputs);
  call.op.reference(call, outputs);
}
#endif

}  // namespace tutti
