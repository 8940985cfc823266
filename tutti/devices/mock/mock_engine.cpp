#include "tutti/devices/mock/mock_engine.h"

#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/stream.h"

namespace tutti {
namespace {

// The memory of a tensor of the mock device, which is memory of the host, as references know it.
Tensor on_host(const Tensor& t) {
  const StorageRef& device = t.storage();
  const auto keep = [device] {};
  const StorageRef host = StorageRef::adopt(Storage::wrap(device->data(), device->nbytes(), kCpu, keep));
  return Tensor::over(host, t.extents(), t.strides(), t.offset(), t.dtype());
}

// What a kernel needs when it runs later than its call: handles on the operands, and attrs of its own.
struct LateCall {
  LibraryKernel kernel;
  const OpDef& op;
  std::vector<Tensor> inputs, outputs;
  Attrs attrs;

  void run() const {
    const FpEnvironmentScope environment;
    std::vector<Tensor> read, written;
    for (const Tensor& t : inputs) read.push_back(on_host(t));
    for (const Tensor& t : outputs) written.push_back(on_host(t));
    kernel({op, read, attrs}, written);
  }
};

[[noreturn]] void refuse_launch(const char* what) {
  throw EnvironmentError(fmt::format("mock: the launch of {} fails, as the test asked for", what));
}

}  // namespace

MockEngine::MockEngine() { register_device_engine(DeviceKind::mock, this); }
MockEngine::~MockEngine() { register_device_engine(DeviceKind::mock, nullptr); }

LibraryKernel MockEngine::library_kernel(const OpDef& op) const {
  TUTTI_CHECK(op.reference != nullptr, "{} has no reference, which is its kernel on the mock device", op.name);
  return op.reference;
}

const codegen::Kernel& MockEngine::kernel_for(const codegen::KernelSpec& spec) { return codegen::kernel_for(spec); }

void MockEngine::check(const OpCall& call) {
  current_stream(device_of(call, {})).synchronize();
  call.op.check(call);
}

bool MockEngine::begin_launch(const char* what) {
  const int64_t number = ++launches_;
  if (number != fails_at_) return false;
  if (failure_ == Failure::at_call) refuse_launch(what);
  return true;
}

void MockEngine::launch(LibraryKernel kernel, const OpCall& call, std::span<const Tensor> outputs, Stream& stream) {
  const bool fails = begin_launch(call.op.name);
  LateCall late{
      kernel, call.op, {call.inputs.begin(), call.inputs.end()}, {outputs.begin(), outputs.end()}, call.attrs};
  stream.submit([late = std::move(late), fails] {
    if (fails) refuse_launch(late.op.name);
    late.run();
  });
}

// The operands are addresses here, which nobody keeps: everything before is waited for, and the kernel runs at once.
uint32_t MockEngine::launch(const LoopPlan& plan, const codegen::Kernel& kernel, const codegen::ParamValue* params,
                            char* const* data, Stream& stream) {
  const bool fails = begin_launch(kernel.name.c_str());
  stream.synchronize();
  if (fails) refuse_launch(kernel.name.c_str());
  const int64_t chain = plan.run.chain, pieces = plan.nest.count(0, plan.outer_end) / chain;
  int64_t blocks = 0;
  {
    const std::lock_guard lock(grid_mutex_);
    blocks = launch_blocks(pieces, 1, limits_, cap_);
  }
  last_blocks_ = blocks;
  KernelRun run = plan.run;
  run.entry = kernel.entry;
  run.params = params;
  run.data = data;
  uint32_t error = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    grid_stride(block, blocks, pieces, [&](int64_t piece) {
      error |= run_nest_part(plan.nest, plan.outer_end, run, {piece * chain, (piece + 1) * chain, 0, run.n_inner});
    });
  }
  return error;
}

void MockEngine::set_grid(const GridLimits& limits, GridCap cap) {
  const std::lock_guard lock(grid_mutex_);
  limits_ = limits;
  cap_ = cap;
}

void MockEngine::fail_launch(int n, Failure failure) {
  failure_ = failure;
  fails_at_ = n > 0 ? launches_ + n : 0;
}

}  // namespace tutti
