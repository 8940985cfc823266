#include "tutti/plan/block_check.h"

#include <cstdlib>
#include <cstring>

#include "tutti/ops/engine/launch.h"
#include "tutti/runtime/numerics.h"

namespace tutti::graph {
namespace {

// "0x3f800000" of an element as it lies in memory.
std::string bits_of(const char* element, int64_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(size));
  return fmt::format("0x{:0{}x}", bits, 2 * size);
}

}  // namespace

bool BlockCheck::is_on() {
  static const bool on = [] {
    const char* text = std::getenv("TUTTI_CHECK_EPILOGUES");
    return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
  }();
  return on;
}

BlockCheck::BlockCheck(const BlockStep* prologue, const BlockStep* epilogue, const OpCall& call,
                       std::span<const Value> inputs, std::span<const Value> outputs, const Graph& graph,
                       std::span<char* const> bases)
    : prologue_(prologue), epilogue_(epilogue), call_(call), output_(outputs[0]), graph_(graph), bases_(bases) {
  std::vector<Tensor> operands(call.inputs.begin(), call.inputs.end());
  if (prologue) {
    copy(inputs[0].buffer, false);
    run(prologue->kernel);
    operands[0] = tensor_of(inputs[0]);
  }
  copy(output_.buffer, false);
  if (epilogue) {
    const KernelStep& kernel = epilogue->kernel;
    for (size_t k = kernel.spec.inputs.size(); k < kernel.operands.size(); ++k) copy(kernel.operands[k].buffer, true);
  }
  const Tensor whole = tensor_of(output_);
  const StrictScope strict;  // blocks are Tutti's in any mode
  call.op.kernel({call.op, operands, call.attrs}, {&whole, 1});
  if (epilogue) run(epilogue->kernel);
}

void BlockCheck::copy(int32_t buffer, bool has_memory) {
  if (copies_.contains(buffer)) return;
  const int64_t nbytes = graph_.buffers[static_cast<size_t>(buffer)].nbytes;
  const Tensor bytes = Tensor::empty({nbytes}, DType::u8);
  if (has_memory && nbytes > 0)
    std::memcpy(bytes.raw_data(), bases_[static_cast<size_t>(buffer)], static_cast<size_t>(nbytes));
  copies_.emplace(buffer, bytes);
}

Tensor BlockCheck::tensor_of(const Value& v) const {
  return Tensor::over(copies_.at(v.buffer).storage(), v.sizes, v.strides, v.offset, v.dtype);
}

void BlockCheck::run(const KernelStep& kernel) const {
  char* data[kMaxNestOperands];
  for (size_t k = 0; k < kernel.operands.size(); ++k) {
    const OperandPlace& place = kernel.operands[k];
    const auto it = copies_.find(place.buffer);
    data[k] =
        (it != copies_.end() ? static_cast<char*>(it->second.raw_data()) : bases_[static_cast<size_t>(place.buffer)]) +
        place.byte_offset;
  }
  // What it reports, the step reports as well, and that ends the call.
  static_cast<void>(launch(kernel.plan, *kernel.kernel, kernel.params.data(), data));
}

void BlockCheck::finish(std::span<char* const> bases) const {
  bool overwritten = false;
  if (epilogue_) {
    const KernelStep& kernel = epilogue_->kernel;
    const size_t inputs = kernel.spec.inputs.size();
    for (size_t k = inputs; k < kernel.operands.size(); ++k) {
      const OperandPlace& place = kernel.operands[k];
      overwritten = overwritten || place.buffer == output_.buffer;
      compare(
          place, kernel.plan.nest, kernel.plan.nest.operands[k],
          fmt::format("output {} of {} ({})", k - inputs, kernel.ops, name_of(kernel.spec.outputs[k - inputs].dtype)),
          bases[static_cast<size_t>(place.buffer)]);
    }
    if (!epilogue_->keeps_operand || overwritten) return;
  }
  LoopNest rows;  // of the output, which is dense
  const int64_t columns = output_.sizes.back();
  rows.sizes = {columns == 0 ? 0 : numel_of(output_.sizes) / columns, columns};
  const int64_t item = itemsize(output_.dtype);
  compare({output_.buffer, output_.offset * item}, rows, {.data = nullptr, .itemsize = item, .strides = {columns, 1}},
          fmt::format("the {}output ({})", epilogue_ ? "kept " : "", name_of(output_.dtype)),
          bases[static_cast<size_t>(output_.buffer)]);
}

std::string BlockCheck::names() const {
  if (prologue_ && epilogue_)
    return fmt::format("prologue {} and epilogue {}", prologue_->kernel.ops, epilogue_->kernel.ops);
  return prologue_ ? "prologue " + prologue_->kernel.ops : "epilogue " + epilogue_->kernel.ops;
}

void BlockCheck::compare(const OperandPlace& place, const LoopNest& nest, const NestOperand& operand,
                         const std::string& what, const char* actual) const {
  const auto* expected = static_cast<const char*>(copies_.at(place.buffer).raw_data());
  const int64_t columns = nest.sizes.back(), points = nest.count(0, nest.sizes.ndim());
  for (int64_t i = 0; i < points; ++i) {
    int64_t element = 0, rest = i;
    for (int d = nest.sizes.ndim() - 1; d >= 0; --d) {
      element += rest % nest.sizes[d] * operand.strides[d];
      rest /= nest.sizes[d];
    }
    const int64_t byte = place.byte_offset + element * operand.itemsize;
    if (std::memcmp(actual + byte, expected + byte, static_cast<size_t>(operand.itemsize)) == 0) continue;
    throw InternalError(
        fmt::format("{} on the blocks of {}: element [{}, {}] of {} is {}, expected {} as they give it one after the "
                    "other; compile with "
                    "epilogues = Epilogues::off, prologues = false and please report this with the shapes {}",
                    names(), call_.op.name, i / columns, i % columns, what, bits_of(actual + byte, operand.itemsize),
                    bits_of(expected + byte, operand.itemsize), output_.sizes));
  }
}

}  // namespace tutti::graph
