// MockEngine: the ops of the mock device, for tests of code that must not depend on where tensors are.
//
// While it lives, ops on tensors of a MockDevice run: their kernels are the references, which work late, when the
// device's stream is waited for, as those of an accelerator do. Compiled kernels run in the blocks of a grid, which
// take strides over the work. The n-th launch fails on request. Any thread may call.
//
//   MockDevice device;
//   MockEngine engine;
//   Tensor y = exp(to_device(x, {DeviceKind::mock, 0}));  // not computed yet
//   to_device(y, kCpu);                                    // now it is
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "tutti/ops/engine/device_engine.h"
#include "tutti/runtime/launch_size.h"

namespace tutti {

class MockEngine final : public DeviceEngine {
 public:
  MockEngine();
  ~MockEngine() override;
  MockEngine(const MockEngine&) = delete;
  MockEngine& operator=(const MockEngine&) = delete;

  LibraryKernel library_kernel(const OpDef& op) const override;
  const codegen::Kernel& kernel_for(const codegen::KernelSpec& spec) override;
  bool runs_compiled_functions() const override { return false; }
  void check(const OpCall& call) override;
  void launch(LibraryKernel kernel, const OpCall& call, std::span<const Tensor> outputs, Stream& stream) override;
  uint32_t launch(const LoopPlan& plan, const codegen::Kernel& kernel, const codegen::ParamValue* params,
                  char* const* data, Stream& stream) override;

  // When a failing launch fails: as an exception of the call, or later, when the stream executes it.
  enum class Failure { at_call, on_stream };
  // The n-th launch from now fails with an EnvironmentError; 1 is the next one, 0 none.
  void fail_launch(int n, Failure failure = Failure::at_call);
  int64_t launches() const { return launches_; }

  // The grids of later launches of compiled kernels, of which a block runs one outer position (or chain) at a time.
  void set_grid(const GridLimits& limits, GridCap cap);
  int64_t last_blocks() const { return last_blocks_; }

 private:
  // Counts a launch. Whether it is the one that fails when the stream executes it.
  bool begin_launch(const char* what);

  std::atomic<int64_t> launches_{0}, fails_at_{0};
  std::atomic<Failure> failure_{Failure::at_call};
  std::mutex grid_mutex_;
  GridLimits limits_;
  GridCap cap_ = GridCap::overflow_only;
  std::atomic<int64_t> last_blocks_{0};
};

}  // namespace tutti
