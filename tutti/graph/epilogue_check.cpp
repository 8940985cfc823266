#include "tutti/graph/epilogue_check.h"

#include <cstdlib>
#include <cstring>

namespace tutti::graph {
namespace {

// "0x3f800000" of an element as it lies in memory.
std::string bits_of(const char* element, int64_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(size));
  return fmt::format("0x{:0{}x}", bits, 2 * size);
}

}  // namespace

bool EpilogueCheck::is_on() {
  static const bool on = [] {
    const char* text = std::getenv("TUTTI_CHECK_EPILOGUES");
    return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
  }();
  return on;
}

EpilogueCheck::EpilogueCheck(const BlockStep& step, const OpCall& call, const Value& output, const Graph& graph, std::span<char* const> bases)
    : step_(step), call_(call), output_(output) {
  const KernelStep& kernel = step.kernel;
  const auto copy = [&](int32_t buffer, bool has_memory) {
    if (copies_.contains(buffer)) return;
    const int64_t nbytes = graph.buffers[static_cast<size_t>(buffer)].nbytes;
    const Tensor bytes = Tensor::empty({nbytes}, DType::u8);
    if (has_memory && nbytes > 0) std::memcpy(bytes.raw_data(), bases[static_cast<size_t>(buffer)], static_cast<size_t>(nbytes));
    copies_.emplace(buffer, bytes);
  };
  copy(output.buffer, false);
  for (size_t k = kernel.spec.inputs.size(); k < kernel.operands.size(); ++k) copy(kernel.operands[k].buffer, true);
  const Tensor whole = Tensor::over(copies_.at(output.buffer).storage(), output.sizes, output.strides, output.offset, output.dtype);
  call.op.kernel(call, {&whole, 1});
  char* data[kMaxNestOperands];
  for (size_t k = 0; k < kernel.operands.size(); ++k) {
    const OperandPlace& place = kernel.operands[k];
    const auto it = copies_.find(place.buffer);
    data[k] = (it != copies_.end() ? static_cast<char*>(it->second.raw_data()) : bases[static_cast<size_t>(place.buffer)]) + place.byte_offset;
  }
  KernelRun run = kernel.run;
  run.entry = kernel.kernel->entry;
  run.params = kernel.params.data();
  run.data = data;
  // What it reports, the step reports as well, and that ends the call.
  static_cast<void>(run_nest(kernel.nest, kernel.outer_end, run));
}

void EpilogueCheck::finish(std::span<char* const> bases) const {
  const KernelStep& kernel = step_.kernel;
  const size_t inputs = kernel.spec.inputs.size();
  bool overwritten = false;
  for (size_t k = inputs; k < kernel.operands.size(); ++k) {
    const OperandPlace& place = kernel.operands[k];
    overwritten = overwritten || place.buffer == output_.buffer;
    compare(place, kernel.nest.operands[k], fmt::format("output {} of {} ({})", k - inputs, kernel.ops, name_of(kernel.spec.outputs[k - inputs].dtype)),
            bases[static_cast<size_t>(place.buffer)]);
  }
  if (step_.keeps_output && !overwritten) {
    compare(kernel.operands[step_.block_operand], kernel.nest.operands[step_.block_operand],
            fmt::format("the kept output ({})", name_of(output_.dtype)), bases[static_cast<size_t>(output_.buffer)]);
  }
}

void EpilogueCheck::compare(const OperandPlace& place, const NestOperand& operand, const std::string& what, const char* actual) const {
  const LoopNest& nest = step_.kernel.nest;
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
    throw InternalError(fmt::format("epilogue {} on the blocks of {}: element [{}, {}] of {} is {}, expected {} as the call and then the kernel "
                                    "give it; compile with epilogues = Epilogues::off and please report this with the shapes {}",
                                    step_.kernel.ops, call_.op.name, i / columns, i % columns, what, bits_of(actual + byte, operand.itemsize),
                                    bits_of(expected + byte, operand.itemsize), output_.sizes));
  }
}

}  // namespace tutti::graph
