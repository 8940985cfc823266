// Ops on the mock device: they run late, fail where they are told to, and never meet a tensor of another device.
#include "tutti/devices/mock/mock_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/message_of.h"
#include "tutti/devices/mock/mock_device.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/tensor_operators.h"
#include "tutti/ops/unary.h"
#include "tutti/tensor/device_copy.h"

namespace tutti {
namespace {

constexpr Device kMock{DeviceKind::mock, 0};

class MockEngineTest : public ::testing::Test {
 protected:
  static Tensor ramp(const Extents& sizes) {
    Tensor t = Tensor::empty(sizes, DType::f32);
    for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i % 7) / 4 - 0.5f;
    return t;
  }
  // Several ops, one of which changes its operand, and one that reads a view.
  static Tensor program(Tensor x, const Tensor& w) {
    Tensor h = relu(matmul(x, w));
    h = h + exp(neg(h));
    return sum(transpose(h, 0, 1) * 2.0, {.dims = {-1}});
  }

  static std::vector<float> values_of(const Tensor& t) {
    const Tensor host = to_contiguous(to_device(t, kCpu));
    return {host.data<float>(), host.data<float>() + host.numel()};
  }

  MockDevice device_;
  MockEngine engine_;
};

TEST_F(MockEngineTest, AProgramOfSeveralOpsRunsWhenItIsWaitedFor) {
  const Tensor x = ramp({3, 4}), w = ramp({4, 5});
  const Tensor expected = program(x, w);
  const Tensor late = program(to_device(x, kMock), to_device(w, kMock));
  EXPECT_EQ(late.device(), kMock);
  EXPECT_GE(engine_.launches(), 6);
  unsigned char first = 0;
  std::memcpy(&first, late.raw_data(), 1);
  EXPECT_EQ(first, MockDevice::kFresh) << "the result is there before anything waited for it";
  const Tensor result = to_device(late, kCpu);
  ASSERT_EQ(result.extents(), expected.extents());
  for (int64_t i = 0; i < result.numel(); ++i)
    EXPECT_NEAR(result.data<float>()[i], expected.data<float>()[i], 1e-5) << "element " << i;
}

TEST_F(MockEngineTest, EachLaunchMayFailAtItsCall) {
  const Tensor x = to_device(ramp({3, 4}), kMock), w = to_device(ramp({4, 5}), kMock);
  program(x, w);
  const int64_t launches = engine_.launches();
  for (int n = 1; n <= launches; ++n) {
    engine_.fail_launch(n);
    EXPECT_THROW(program(x, w), EnvironmentError) << "launch " << n;
  }
  engine_.fail_launch(0);
  EXPECT_EQ(to_device(program(x, w), kCpu).extents(), (Extents{5}));
}

TEST_F(MockEngineTest, AFailureOnTheStreamReachesWhoWaits) {
  const Tensor x = to_device(ramp({3, 4}), kMock), w = to_device(ramp({4, 5}), kMock);
  engine_.fail_launch(2, MockEngine::Failure::on_stream);
  const Tensor y = program(x, w);
  EXPECT_THROW(to_device(y, kCpu), EnvironmentError);
}

TEST_F(MockEngineTest, AfterAFailureTheSameTensorsCompute) {
  const Tensor x = to_device(ramp({3, 4}), kMock), w = to_device(ramp({4, 5}), kMock);
  const std::vector<float> expected = values_of(program(x, w));
  for (const auto failure : {MockEngine::Failure::at_call, MockEngine::Failure::on_stream}) {
    for (int n = 1; n <= 5; ++n) {
      engine_.fail_launch(n, failure);
      EXPECT_THROW(to_device(program(x, w), kCpu), EnvironmentError) << "launch " << n;
      default_stream(kMock).synchronize();
      EXPECT_EQ(values_of(program(x, w)), expected) << "after launch " << n;
    }
  }
}

TEST_F(MockEngineTest, AStreamReadsAnothersResultAfterItsEvent) {
  const Tensor x = ramp({3, 4}), w = ramp({4, 5});
  const std::vector<float> expected = values_of(program(x, w));
  const auto first = device_.make_stream(0), second = device_.make_stream(0);
  const auto on = [](Stream& stream, const auto& call) {
    const StreamScope scope(stream);
    return call();
  };
  for (const bool waits : {true, false}) {
    const Tensor left = on(*first, [&] { return exp(to_device(x, kMock)); });
    if (waits) second->wait_for(first->record());
    const Tensor right = on(*second, [&] { return left + left; });
    EXPECT_GT(first->pending(), 0);
    const std::vector<float> got = on(*second, [&] { return values_of(right); });
    EXPECT_EQ(got == values_of(exp(x) + exp(x)), waits) << "a stream that does not wait reads what is not there yet";
    first->synchronize();
  }
  // What fails on one stream is thrown there and nowhere else.
  engine_.fail_launch(1, MockEngine::Failure::on_stream);
  const Tensor failed = on(*first, [&] { return exp(to_device(x, kMock)); });
  const std::vector<float> got =
      on(*second, [&] { return values_of(program(to_device(x, kMock), to_device(w, kMock))); });
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
  EXPECT_THROW(first->synchronize(), EnvironmentError);
}

TEST_F(MockEngineTest, ThreadsShareTheEngine) {
  for (const bool own_streams : {true, false}) {
    std::vector<std::thread> threads;
    for (int64_t rows = 3; rows < 6; ++rows) {
      threads.emplace_back([this, rows, own_streams] {
        const auto mine = device_.make_stream(0);
        std::optional<StreamScope> scope;
        if (own_streams) scope.emplace(*mine);
        const Tensor x = ramp({rows, 4}), w = ramp({4, 5});
        const std::vector<float> expected = values_of(program(to_device(x, kMock), to_device(w, kMock)));
        for (int round = 0; round < 20; ++round)
          EXPECT_EQ(values_of(program(to_device(x, kMock), to_device(w, kMock))), expected) << rows << " rows";
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(MockEngineTest, TensorsOfTwoDevicesAreRefused) {
  const Tensor x = ramp({2, 2});
  const std::string said = message_of([&] { static_cast<void>(to_device(x, kMock) + x); });
  EXPECT_NE(said.find("add: the tensor [2, 2] f32 cpu is not on mock:0"), std::string::npos) << said;
}

TEST(MockDeviceWithoutEngine, SaysThatItHasNoKernels) {
  MockDevice device;
  const Tensor x = to_device(zeros({2}, DType::f32), kMock);
  EXPECT_EQ(message_of([&] { static_cast<void>(exp(x)); }),
            "exp: no kernels are registered for mock:0; copy the tensors to the cpu, or register a DeviceEngine");
}

// ---- compiled kernels: a grid of any size does all the work of a launch
// -------------------------------------------------

// out[o, i] = -in[o, i] over rows that lie `stride` elements apart.
const codegen::Kernel& negation() {
  ExprPool pool;
  const Expr y = apply_scalar(ScalarOp::neg, pool.arg(0, DType::i64));
  codegen::KernelSpec spec;
  spec.inputs = {{DType::i64, codegen::StrideClass::contiguous}};
  spec.outputs = {{DType::i64, codegen::StrideClass::contiguous}};
  spec.nodes = pool.nodes();
  spec.results = {y.id()};
  spec.name = "negation";
  return codegen::kernel_for(spec);
}

std::vector<int64_t> launched(int64_t rows, int64_t columns, int64_t chain, Device device) {
  const int64_t stride = columns + 3;
  std::vector<int64_t> in(static_cast<size_t>(rows * stride)), out(in.size(), 5);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int64_t>(i);
  LoopPlan plan;
  plan.nest.sizes = {rows, columns};
  plan.nest.logical = {columns, 1};
  for (std::vector<int64_t>* values : {&in, &out})
    plan.nest.operands.push_back({reinterpret_cast<char*>(values->data()), 8, {stride, 1}});
  plan.inputs = 1;
  plan_pointwise(plan);
  plan.run.chain = chain;
  EXPECT_EQ(device_engine(device, "negation").launch(plan, negation(), nullptr, nullptr, default_stream(device)), 0u);
  return out;
}

TEST(MockGrid, EveryGridHasTheResultsOfTheHost) {
  const MockDevice device;
  MockEngine engine;
  for (const int64_t rows : {0, 1, 6, 720})
    for (const int64_t chain : {1, 3}) {
      if (rows % chain != 0) continue;
      const std::vector<int64_t> expected = launched(rows, 40, chain, kCpu);
      for (const int64_t processors : {1, 5, 1000}) {
        engine.set_grid({.processors = processors, .blocks_per_processor = 1}, GridCap::always);
        EXPECT_EQ(launched(rows, 40, chain, kMock), expected) << rows << " rows, " << processors << " processors";
        if (rows > 1) {
          EXPECT_EQ(engine.last_blocks(), std::min(processors, rows / chain));
        }
      }
    }
}

TEST(MockGrid, IsCutWhenItWouldOverflow) {
  const MockDevice device;
  MockEngine engine;
  engine.set_grid({.processors = 2, .blocks_per_processor = 4, .most_threads = 100}, GridCap::overflow_only);
  launched(100, 8, 1, kMock);
  EXPECT_EQ(engine.last_blocks(), 100);
  EXPECT_EQ(launched(101, 8, 1, kMock), launched(101, 8, 1, kCpu));
  EXPECT_EQ(engine.last_blocks(), 8);
}

}  // namespace
}  // namespace tutti
