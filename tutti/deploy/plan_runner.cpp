#include "tutti/deploy/plan_runner.h"

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/ops/engine/launch.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/plan_memory.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/inherited_flags.h"
#include "tutti/runtime/trace/trace_event.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/host_read.h"

namespace tutti::deploy {
namespace {

using graph::BatchStep;
using graph::BlockStep;
using graph::Buffer;
using graph::CallStep;
using graph::KernelStep;
using graph::Value;

// What a live group computes is no part of the package: it may need kernels that the package does not have.
struct LiveGroup {
  const InheritedFlags::Scope no_flags{uint32_t{0}};
};

// Calls visit(buffer) for the memory that a step reads or writes.
template <class Visit>
void for_each_buffer(const graph::Step& step, Visit visit) {
  const auto look = [&](const KernelStep& kernel, const size_t* in_blocks) {
    for (size_t k = 0; k < kernel.operands.size(); ++k) {
      if (in_blocks == nullptr || *in_blocks != k) visit(kernel.operands[k].buffer);
    }
  };
  if (const auto* kernel = std::get_if<KernelStep>(&step)) look(*kernel, nullptr);
  if (const auto* batch = std::get_if<BatchStep>(&step)) {
    for (const KernelStep& kernel : batch->kernels) look(kernel, nullptr);
  }
  const auto* call = std::get_if<CallStep>(&step);
  if (call == nullptr) return;
  for (size_t i = call->prologue ? 1 : 0; i < call->inputs.size(); ++i) visit(call->inputs[i].buffer);
  if (!call->epilogue || call->epilogue->keeps_operand) {
    for (const Value& v : call->outputs) visit(v.buffer);
  }
  for (const auto* block : {&call->prologue, &call->epilogue}) {
    if (*block) look((*block)->kernel, (*block)->keeps_operand ? nullptr : &(*block)->block_operand);
  }
}

// A part of control flow on the memory of its feeds.
graph::ControlStep::Part part_of(const PlanControl::Part& part, Plan plan) {
  std::vector<int64_t> nbytes(part.feeds.size(), 0);
  for (const Buffer& b : plan.buffers) {
    if (b.kind != Buffer::Kind::given) continue;
    int64_t& most = nbytes[static_cast<size_t>(plan.sources[static_cast<size_t>(b.source)].index)];
    most = std::max(most, b.nbytes);
  }
  const auto runner = std::make_shared<const PlanRunner>(std::move(plan));
  const auto run = [runner, nbytes](std::span<const graph::GivenMemory> given, std::span<const Tensor>) {
    std::vector<Tensor> sources;
    for (const PlanSource& source : runner->plan().sources) {
      const auto i = static_cast<size_t>(source.index);
      char* const data = static_cast<char*>(given[i].storage->data()) + given[i].first_byte;
      sources.push_back(Tensor::from_memory(data, {nbytes[i]}, DType::u8, [keep = given[i].storage] {}));
    }
    return runner->run(sources);
  };
  return {part.name, part.feeds, nullptr, run};
}

std::unique_ptr<const graph::ControlStep> make_control(PlanControl& control) {
  std::vector<graph::ControlStep::Part> parts;
  for (size_t p = 0; p < control.parts.size(); ++p)
    parts.push_back(part_of(control.parts[p], std::move(control.plans[p])));
  const graph::ControlBody body{.kind = control.kind,
                                .text = control.text,
                                .carried = control.carried,
                                .walked = control.walked,
                                .steps = control.steps};
  return std::make_unique<const graph::ControlStep>(body, std::move(parts));
}

// Throws the error that is being handled again, with the line of the user that the op stands for.
[[noreturn]] void rethrow_with_line(const CallStep& step, const char* name) {
  if (step.origin.place == nullptr || step.origin.place->stack.empty()) throw;
  const std::string place = fmt::format("{} at {}", name, step.origin.place->stack.front());
  try {
    throw;
  } catch (const Error& error) {
    if (typeid(error) == typeid(UsageError)) throw UsageError(fmt::format("{} [{}]", error.what(), place));
    throw;
  }
}

}  // namespace

// The memory of one call.
struct PlanRunner::Frame {
  Tensor arena;
  std::vector<StorageRef> storages;  // per buffer
  std::vector<char*> bases;
  std::vector<std::vector<Tensor>> started;  // per step: outputs that an ordered call may still write
};

PlanRunner::PlanRunner(Plan plan) : plan_(std::move(plan)) {
  for (graph::Step& step : plan_.steps) {
    auto* batch = std::get_if<BatchStep>(&step);
    if (batch == nullptr) continue;
    const char* graph_key = intern_trace_name(batch->kernels[0].trace->info.graph_key);
    *batch = graph::make_batch(std::move(batch->kernels), graph_key);
  }
  for (PlanControl& control : plan_.controls) controls_.push_back(make_control(control));
  plan_waits();
  plan_memory();
}

PlanRunner::~PlanRunner() = default;

void PlanRunner::plan_waits() {
  const size_t count = plan_.steps.size();
  for (size_t s = 0; s < count; ++s) {
    const auto* call = std::get_if<CallStep>(&plan_.steps[s]);
    if (call == nullptr || call->node >= 0 || !call->op->ordered) continue;
    group_of_.resize(count);
    waits_.resize(count + 1);
    const CallAttrs* attrs = collective_attrs(*call->op, call->attrs);
    TUTTI_ASSERT(attrs != nullptr, "{} is called in no group", call->op->name);
    group_of_[s] = *attrs->group.name;
    for (size_t k = 0; k < call->outputs.size(); ++k) {
      size_t reader = s + 1;
      for (bool found = false; reader < count && !found; reader += found ? 0 : 1)
        for_each_buffer(plan_.steps[reader], [&](int32_t b) { found = found || b == call->outputs[k].buffer; });
      waits_[reader].push_back({s, k});
    }
  }
}

void PlanRunner::plan_memory() {
  const size_t count = plan_.buffers.size();
  is_result_.assign(count, false);
  only_result_.assign(count, -1);
  std::vector<int32_t> uses(count, 0);
  for (size_t k = 0; k < plan_.results.size(); ++k) {
    const Value& v = plan_.results[k];
    const auto b = static_cast<size_t>(v.buffer);
    is_result_[b] = plan_.buffers[b].kind == Buffer::Kind::made;
    const bool all = v.offset == 0 && v.strides == contiguous_strides(v.sizes) &&
                     numel_of(v.sizes) * itemsize(v.dtype) == plan_.buffers[b].nbytes;
    only_result_[b] = ++uses[b] == 1 && all && is_result_[b] ? static_cast<int32_t>(k) : -1;
  }
  std::vector<int32_t> first(count, -1), last(count, -1);
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    for_each_buffer(plan_.steps[s], [&](int32_t buffer) {
      const auto b = static_cast<size_t>(buffer);
      if (plan_.buffers[b].kind != Buffer::Kind::made || is_result_[b]) return;
      if (first[b] < 0) first[b] = static_cast<int32_t>(s);
      last[b] = static_cast<int32_t>(s);
    });
  }
  for (size_t s = 0; s < waits_.size(); ++s) {  // what is being written is in use
    for (const Wait& w : waits_[s]) {
      const auto b = static_cast<size_t>(std::get<CallStep>(plan_.steps[w.step]).outputs[w.output].buffer);
      if (first[b] >= 0) last[b] = std::max(last[b], static_cast<int32_t>(s));
    }
  }
  std::vector<graph::Lifetime> lifetimes;
  std::vector<size_t> owner;
  for (size_t b = 0; b < count; ++b) {
    if (first[b] < 0) continue;
    lifetimes.push_back({plan_.buffers[b].nbytes, first[b], last[b]});
    owner.push_back(b);
  }
  const graph::MemoryPlan memory = graph::plan_memory(lifetimes);
  arena_offsets_.assign(count, -1);
  for (size_t i = 0; i < owner.size(); ++i) arena_offsets_[owner[i]] = memory.offsets[i];
  arena_bytes_ = memory.total;
}

std::unique_ptr<PlanRunner::Frame> PlanRunner::take_frame() const {
  {
    const std::lock_guard lock(mutex_);
    if (!frames_.empty()) {
      std::unique_ptr<Frame> frame = std::move(frames_.back());
      frames_.pop_back();
      return frame;
    }
  }
  auto frame = std::make_unique<Frame>();
  frame->arena = Tensor::empty({arena_bytes_}, DType::u8);
  frame->storages.resize(plan_.buffers.size());
  frame->bases.resize(plan_.buffers.size(), nullptr);
  frame->started.resize(group_of_.size());
  for (size_t b = 0; b < plan_.buffers.size(); ++b) {
    if (arena_offsets_[b] < 0) continue;
    frame->bases[b] = static_cast<char*>(frame->arena.raw_data()) + arena_offsets_[b];
    frame->storages[b] =
        StorageRef::adopt(Storage::wrap(frame->bases[b], plan_.buffers[b].nbytes, kCpu, [arena = frame->arena] {}));
  }
  return frame;
}

Tensor PlanRunner::tensor_of(const Value& v, const Frame& frame) const {
  return Tensor::over(frame.storages[static_cast<size_t>(v.buffer)], v.sizes, v.strides, v.offset, v.dtype);
}

std::vector<Tensor> PlanRunner::run(std::span<const Tensor> sources, std::span<const Tensor> into) const {
  const FpEnvironmentScope environment;
  std::unique_ptr<Frame> frame = take_frame();
  for (size_t b = 0; b < plan_.buffers.size(); ++b) {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.kind == Buffer::Kind::given) frame->storages[b] = sources[static_cast<size_t>(buffer.source)].storage();
    else if (!is_result_[b]) continue;
    else if (!into.empty() && only_result_[b] >= 0)
      frame->storages[b] = into[static_cast<size_t>(only_result_[b])].storage();
    else frame->storages[b] = StorageRef::adopt(Storage::allocate(buffer.nbytes, kCpu));
    frame->bases[b] = static_cast<char*>(frame->storages[b]->data());
  }
  run_steps(*frame);
  std::vector<Tensor> results;
  for (size_t k = 0; k < plan_.results.size(); ++k) {
    const Value& v = plan_.results[k];
    Tensor result = tensor_of(v, *frame);
    const bool lies_there = !into.empty() && only_result_[static_cast<size_t>(v.buffer)] == static_cast<int32_t>(k);
    if (!into.empty() && !lies_there && into[k].nbytes() > 0)
      std::memcpy(into[k].raw_data(), to_contiguous(result).raw_data(), static_cast<size_t>(into[k].nbytes()));
    const Buffer& buffer = plan_.buffers[static_cast<size_t>(v.buffer)];
    const bool is_state = buffer.kind == Buffer::Kind::given &&
                          plan_.sources[static_cast<size_t>(buffer.source)].kind == PlanSource::Kind::state;
    if (into.empty() && is_state) result = clone_to(result, kCpu);  // the next call changes the state
    results.push_back(into.empty() ? std::move(result) : into[k]);
  }
  for (size_t b = 0; b < plan_.buffers.size(); ++b) {
    if (arena_offsets_[b] < 0) frame->storages[b] = {};
  }
  const std::lock_guard lock(mutex_);
  frames_.push_back(std::move(frame));
  return results;
}

void PlanRunner::run_steps(Frame& frame) const {
  try {
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      if (!waits_.empty()) wait(waits_[s], frame);
      run_step(s, frame);
    }
    if (!waits_.empty()) wait(waits_.back(), frame);
  } catch (...) {
    // Nothing writes the memory of the caller any more when this call has ended.
    for (const std::vector<Tensor>& outputs : frame.started) {
      for (const Tensor& output : outputs) {
        try {
          const LiveGroup live;
          if (output.defined()) before_host_read(output);
        } catch (const Error&) {
        }
      }
    }
    throw;
  }
}

void PlanRunner::wait(const std::vector<Wait>& waits, Frame& frame) const {
  for (const Wait& w : waits) {
    Tensor& output = frame.started[w.step][w.output];
    const auto& call = std::get<CallStep>(plan_.steps[w.step]);
    try {
      const LiveGroup live;
      before_host_read(output);
    } catch (const Error&) {
      rethrow_with_line(call, call.op->name);
    }
    output = {};
  }
}

void PlanRunner::run_step(size_t index, Frame& frame) const {
  const graph::Step& step = plan_.steps[index];
  if (const auto* kernel = std::get_if<KernelStep>(&step)) {
    run_kernel(*kernel, frame);
  } else if (const auto* batch = std::get_if<BatchStep>(&step)) {
    if (const KernelStep* failed = run_batch(*batch, frame.bases)) refuse_zero(*failed);
  } else {
    run_call(index, std::get<CallStep>(step), frame);
  }
}

void PlanRunner::run_kernel(const KernelStep& step, const Frame& frame) const {
  const TraceSpan span(TraceCategory::kernel, *step.trace);
  char* data[kMaxNestOperands];
  for (size_t k = 0; k < step.operands.size(); ++k)
    data[k] = frame.bases[static_cast<size_t>(step.operands[k].buffer)] + step.operands[k].byte_offset;
  if (launch(step.plan, *step.kernel, step.params.data(), data) != 0) refuse_zero(step);
}

void PlanRunner::refuse_zero(const KernelStep& kernel) const {
  TUTTI_ASSERT(kernel.reporter >= 0, "the kernel {} reports an error, and no op in it can fail", kernel.ops);
  throw IntegerDivideByZero(plan_.reporters[static_cast<size_t>(kernel.reporter)]);
}

void PlanRunner::run_call(size_t index, const CallStep& step, Frame& frame) const {
  std::vector<Tensor> inputs, outputs;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const bool in_blocks = i == 0 && step.prologue;
    const graph::Graph buffers{
        .buffers = in_blocks ? plan_.buffers : std::vector<Buffer>{}, .nodes = {}, .results = {}};
    inputs.push_back(in_blocks ? stand_ins({&step.inputs[0], 1}, buffers)[0] : tensor_of(step.inputs[i], frame));
    if (!step.copy_first.empty() && step.copy_first[i]) inputs.back() = clone_to(inputs.back(), kCpu);
  }
  if (step.node >= 0) return run_control(step, inputs, frame);
  const OpCall call{*step.op, inputs, step.attrs};
  try {
    if (step.op->check) step.op->check(call);
    if (step.check_only) return;
    TraceContext context = TraceContext::current();
    context.phase = step.origin.phase;
    context.place = step.origin.place;
    const TraceContextScope scope(context);
    if (step.epilogue && !step.epilogue->keeps_operand) {
      outputs.resize(step.outputs.size());
    } else {
      for (const Value& v : step.outputs) outputs.push_back(tensor_of(v, frame));
    }
    if (step.op->ordered) {
      RankGroup& group = BoundGroupsScope::find(group_of_[index], step.op->name);
      launch_call(call, step.trace, [&] {
        const LiveGroup live;
        group.start(call, outputs);
      });
      frame.started[index] = std::move(outputs);
      return;
    }
    if (step.prologue || step.epilogue)
      launch_call(call, step.trace, [&] { run_with_blocks(step, call, outputs, frame); });
    else launch_call(call, outputs, step.trace);
  } catch (const Error&) {
    rethrow_with_line(step, step.op->name);
  }
}

void PlanRunner::run_control(const CallStep& step, std::span<const Tensor> inputs, const Frame& frame) const {
  const graph::ControlStep& control = *controls_[static_cast<size_t>(step.node)];
  try {
    control.check(inputs);
  } catch (const Error&) {
    rethrow_with_line(step, control.name());
  }
  std::vector<Tensor> outputs;
  for (const Value& v : step.outputs) outputs.push_back(tensor_of(v, frame));
  control.run(inputs, outputs);
}

void PlanRunner::run_with_blocks(const CallStep& step, const OpCall& call, std::span<const Tensor> outputs,
                                 const Frame& frame) const {
  char* data[2][kMaxNestOperands];
  const auto find = [&](const std::optional<BlockStep>& block, char** list) {
    if (!block) return graph::BlockRun{};
    for (size_t k = 0; k < block->kernel.operands.size(); ++k) {
      const graph::OperandPlace& place = block->kernel.operands[k];
      char* base = frame.bases[static_cast<size_t>(place.buffer)];
      list[k] = base ? base + place.byte_offset : nullptr;  // none of an operand that is not kept
    }
    return graph::BlockRun{&*block, list};
  };
  const graph::BlockErrors errors =
      run_in_blocks(call, outputs, find(step.prologue, data[0]), find(step.epilogue, data[1]));
  if (errors.prologue != 0) refuse_zero(step.prologue->kernel);
  if (errors.epilogue != 0) refuse_zero(step.epilogue->kernel);
}

}  // namespace tutti::deploy
