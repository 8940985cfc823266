// What an Executable knows of its steps before the first call: where each waits, which memory it writes, where buffers
// lie.
#include "tutti/plan/executable_frame.h"
#include "tutti/plan/passes/plan_memory.h"

namespace tutti::graph {
namespace {

// A buffer of at least so many bytes has memory of its own, from its first use to its last. In the arena it would be
// held for the whole call: the activations of a training step until the last gradient has been handed out. Smaller ones
// would cost more time than they save memory.
constexpr int64_t kOwnMemory = int64_t{64} << 10;

std::span<const KernelStep> kernels_of(const Step& step) {
  if (const auto* batch = std::get_if<BatchStep>(&step)) return batch->kernels;
  const auto* kernel = std::get_if<KernelStep>(&step);
  return kernel ? std::span(kernel, 1) : std::span<const KernelStep>();
}

// Calls visit(buffer) for what a step reads or writes.
template <class Visit>
void for_each_buffer(const Step& step, Visit visit) {
  for (const KernelStep& kernel : kernels_of(step)) {
    for (const OperandPlace& place : kernel.operands) visit(place.buffer);
  }
  if (!std::holds_alternative<CallStep>(step)) return;
  const CallStep& call = std::get<CallStep>(step);
  const bool is_kept = !call.epilogue || call.epilogue->keeps_operand;
  for (size_t i = call.prologue ? 1 : 0; i < call.inputs.size(); ++i) visit(call.inputs[i].buffer);
  if (is_kept)
    for (const Value& v : call.outputs) visit(v.buffer);
  for (const auto* block : {&call.prologue, &call.epilogue}) {
    if (!*block) continue;
    const std::vector<OperandPlace>& operands = (*block)->kernel.operands;
    for (size_t k = 0; k < operands.size(); ++k) {
      if ((*block)->keeps_operand || k != (*block)->block_operand) visit(operands[k].buffer);
    }
  }
}

// Calls visit(buffer) for what a step writes.
template <class Visit>
void for_each_written(const Step& step, Visit visit) {
  const auto look = [&](const KernelStep& kernel) {
    for (size_t k = kernel.spec.inputs.size(); k < kernel.operands.size(); ++k) visit(kernel.operands[k].buffer);
  };
  for (const KernelStep& kernel : kernels_of(step)) look(kernel);
  const auto* call = std::get_if<CallStep>(&step);
  if (call == nullptr || call->check_only) return;
  for (const Value& v : call->outputs) visit(v.buffer);
  if (call->epilogue) look(call->epilogue->kernel);
}

}  // namespace

void Executable::plan_waits() {
  waits_.resize(steps_.size() + 1);
  for (size_t s = 0; s < steps_.size(); ++s) {
    const auto* call = std::get_if<CallStep>(&steps_[s]);
    if (call == nullptr || !call->op->ordered) continue;
    for (size_t k = 0; k < call->outputs.size(); ++k) {
      size_t reader = s + 1;
      for (bool found = false; reader < steps_.size() && !found; reader += !found)
        for_each_buffer(steps_[reader], [&](int32_t b) { found = found || b == call->outputs[k].buffer; });
      waits_[reader].push_back({static_cast<int32_t>(s), static_cast<int32_t>(k)});
    }
  }
}

// What a collective may still read while other steps run is used until somebody waits for it.
void Executable::plan_uses() {
  uses_.resize(graph_.buffers.size());
  const auto use = [&](int32_t buffer, size_t step) {
    std::vector<int32_t>& of = uses_[static_cast<size_t>(buffer)];
    if (graph_.buffers[static_cast<size_t>(buffer)].kind == Buffer::Kind::given)
      of.push_back(static_cast<int32_t>(step));
  };
  for (size_t s = 0; s <= steps_.size(); ++s) {
    for (const Wait& w : waits_[s]) {
      for (const Value& v : std::get<CallStep>(steps_[static_cast<size_t>(w.step)]).inputs) use(v.buffer, s);
    }
    if (s < steps_.size()) for_each_buffer(steps_[s], [&](int32_t b) { use(b, s); });
  }
}

void Executable::plan_buffers() {
  const size_t count = graph_.buffers.size();
  is_result_.assign(count, false);
  for (const Value& v : graph_.results) {
    if (v.buffer >= 0)
      is_result_[static_cast<size_t>(v.buffer)] =
          graph_.buffers[static_cast<size_t>(v.buffer)].kind == Buffer::Kind::made;
  }
  std::vector<int32_t> uses(count, 0);
  only_result_.assign(count, -1);
  for (size_t k = 0; k < graph_.results.size(); ++k) {
    const Value& v = graph_.results[k];
    if (v.buffer < 0) continue;
    const auto b = static_cast<size_t>(v.buffer);
    const bool all = v.offset == 0 && v.strides == contiguous_strides(v.sizes) &&
                     numel_of(v.sizes) * itemsize(v.dtype) == graph_.buffers[b].nbytes;
    only_result_[b] = ++uses[b] == 1 && all ? static_cast<int32_t>(k) : -1;
  }
  plan_writes();
  const std::vector<bool> is_kept = plan_kept();

  const auto has_own_memory = [&](size_t b) { return is_kept[b] || graph_.buffers[b].nbytes >= kOwnMemory; };
  std::vector<int32_t> first(count, -1), last(count, -1);
  comes_later_.assign(count, false);
  const auto touch = [&](int32_t buffer, size_t step) {
    const auto b = static_cast<size_t>(buffer);
    if (graph_.buffers[b].kind != Buffer::Kind::made) return;
    if (is_result_[b]) {
      if (!comes_later_[b] && has_own_memory(b)) allocates_[step].push_back(buffer);
      comes_later_[b] = has_own_memory(b);
      return;
    }
    if (first[b] < 0) first[b] = static_cast<int32_t>(step);
    last[b] = static_cast<int32_t>(step);
  };
  for (size_t s = 0; s <= steps_.size(); ++s) {
    for (const Wait& w : waits_[s]) {
      // What a collective writes until it is waited for. Memory of its own is held by the call.
      const Value& v = std::get<CallStep>(steps_[static_cast<size_t>(w.step)]).outputs[static_cast<size_t>(w.output)];
      if (!has_own_memory(static_cast<size_t>(v.buffer))) touch(v.buffer, s);
    }
    if (s < steps_.size()) for_each_buffer(steps_[s], [&](int32_t b) { touch(b, s); });
  }

  std::vector<Lifetime> lifetimes;
  std::vector<size_t> owner;
  for (size_t b = 0; b < count; ++b) {
    if (first[b] < 0) continue;
    if (has_own_memory(b)) {
      allocates_[static_cast<size_t>(first[b])].push_back(static_cast<int32_t>(b));
      lets_go_[static_cast<size_t>(last[b])].push_back(static_cast<int32_t>(b));
      continue;
    }
    lifetimes.push_back({graph_.buffers[b].nbytes, first[b], last[b]});
    owner.push_back(b);
  }
  const MemoryPlan plan = plan_memory(lifetimes);
  arena_offsets_.assign(count, -1);
  for (size_t i = 0; i < owner.size(); ++i) arena_offsets_[owner[i]] = plan.offsets[i];
  arena_bytes_ = plan.total;
  statistics_.arena_bytes = plan.total;
  statistics_.unplanned_bytes = plan.unplanned;
}

// The buffers that ops keep. What they read of memory that somebody else may write later is copied for them.
std::vector<bool> Executable::plan_kept() {
  allocates_.resize(steps_.size() + 1);
  lets_go_.resize(steps_.size() + 1);
  std::vector<bool> is_kept(graph_.buffers.size(), false);
  for (Step& step : steps_) {
    auto* call = std::get_if<CallStep>(&step);
    if (call == nullptr || !call->op->keeps_inputs) continue;
    call->copy_first.resize(call->inputs.size(), false);
    for (size_t i = 0; i < call->inputs.size(); ++i) {
      const Value& v = call->inputs[i];
      const Buffer& buffer = graph_.buffers[static_cast<size_t>(v.buffer)];
      const bool is_written_later = v.version + 1 < buffer.versions;
      if (buffer.kind == Buffer::Kind::given || is_written_later) call->copy_first[i] = true;
      else is_kept[static_cast<size_t>(v.buffer)] = !is_result_[static_cast<size_t>(v.buffer)];
    }
  }
  return is_kept;
}

void Executable::plan_writes() {
  std::vector<bool> written(graph_.buffers.size(), false);
  first_writes_.resize(steps_.size());
  for (size_t s = 0; s < steps_.size(); ++s) {
    for_each_written(steps_[s], [&](int32_t buffer) {
      const auto b = static_cast<size_t>(buffer);
      if (written[b] || graph_.buffers[b].kind != Buffer::Kind::given) return;
      written[b] = writes_given_ = true;
      first_writes_[s].push_back(buffer);
    });
  }
}

}  // namespace tutti::graph
