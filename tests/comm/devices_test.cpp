// Collectives of tensors on another device than the host.
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/devices/mock/mock_device.h"
#include "tutti/devices/mock/mock_engine.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::comm {
namespace {

// Each rank has a device, and so a stream, of its own.
Device device_of_rank(const ProcessGroup& group) { return {DeviceKind::mock, static_cast<int16_t>(group.rank())}; }

TEST(CollectivesOnDevices, AGroupWithoutABackendForTheDeviceRefusesItsTensors) {
  MockDevice device(2);
  MockEngine engine;
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = to_device(full({4}, group.rank() + 1.0), device_of_rank(group));
    const std::string said = message_of([&] { group.all_reduce(x, ReduceKind::sum); });
    TUTTI_CHECK(said.find("has no backend for tensors on mock; set_backend() gives it one") != std::string::npos, "{}",
                said);
    // The refusal was of this rank alone, before any rank was told: the group goes on.
    Tensor y = full({4}, group.rank() + 1.0);
    group.all_reduce(y, ReduceKind::sum);
    TUTTI_CHECK(y.data<float>()[3] == 3, "{}", y.data<float>()[3]);
  });
  EXPECT_EQ(device.report(), "");
}

TEST(CollectivesOnDevices, FunctionalOnesAreOpsOfTheDevice) {
  MockDevice device(2);
  MockEngine engine;
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = to_device(full({2, 3}, group.rank() + 1.0), device_of_rank(group));
    const Tensor sum = functional::all_reduce(add(x, 1.0), "sum", group);
    const Tensor parts = functional::all_gather_single(mul(sum, x), 0, group);
    TUTTI_CHECK(parts.device() == x.device(), "{}", describe(parts));
    const Tensor y = to_device(parts, kCpu);
    TUTTI_CHECK(y.extents() == (Extents{4, 3}) && y.data<float>()[0] == 5 && y.data<float>()[11] == 10, "{}",
                to_string(y));
  });
  EXPECT_EQ(device.report(), "");
}

}  // namespace
}  // namespace tutti::comm
