// Compiled functions run on the host; tensors of another device are refused by name.
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/devices/mock/mock_device.h"
#include "tutti/devices/mock/mock_engine.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/unary.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::graph {
namespace {

TEST(CompiledDevices, TensorsOfAnotherDeviceAreRefused) {
  MockDevice device;
  MockEngine engine;
  const auto compiled = compile([](const Tensor& x) { return exp(x); });
  const Tensor x = zeros({2, 3}, DType::f32);
  EXPECT_EQ(compiled(x).extents(), x.extents());
  const std::string said = message_of([&] { compiled(to_device(x, {DeviceKind::mock, 0})); });
  EXPECT_NE(said.find("is on mock:0, and compiled functions run on the cpu; copy it there"), std::string::npos) << said;
  EXPECT_EQ(compiled(x).extents(), x.extents());
}

}  // namespace
}  // namespace tutti::graph
