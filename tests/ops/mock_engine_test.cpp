// Ops on the mock device: they run late, fail where they are told to, and never meet a tensor of another device.
#include "tutti/ops/mock/mock_engine.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/tensor_operators.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/mock_device.h"
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

}  // namespace
}  // namespace tutti
