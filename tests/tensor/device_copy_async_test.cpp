// Copies given to a stream of the mock device, whose work is late: what they hold, when they are done, how they fail.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tutti/devices/mock/mock_device.h"
#include "tutti/tensor/device_copy.h"

namespace tutti {
namespace {

constexpr Device kMock0{DeviceKind::mock, 0}, kMock1{DeviceKind::mock, 1};

Tensor counting(const Extents& sizes) {
  std::vector<float> values(static_cast<size_t>(numel_of(sizes)));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::of(values, sizes);
}

// The elements in row-major order; the tensor is on the host.
std::vector<float> elements_of(const Tensor& t) {
  const Tensor packed = to_contiguous(t);
  return {packed.data<float>(), packed.data<float>() + packed.numel()};
}

class DeviceCopyAsync : public ::testing::Test {
 protected:
  // Tensors of a test end before this runs.
  void TearDown() override { EXPECT_EQ(mock.report(), ""); }
  MockDevice mock;
};

TEST_F(DeviceCopyAsync, AnAsyncCopyIsDoneWithItsEvent) {
  const auto stream = mock.make_stream(0);
  const PendingCopy copy = clone_to_async(counting({4}), kMock0, *stream);
  EXPECT_FALSE(copy.done->is_done());
  EXPECT_TRUE(std::isnan(*static_cast<const float*>(copy.tensor.raw_data()))) << "nothing was copied yet";
  copy.done->wait();
  EXPECT_TRUE(copy.done->is_done());
  EXPECT_EQ(*(static_cast<const float*>(copy.tensor.raw_data()) + 3), 3);
}

TEST_F(DeviceCopyAsync, AnAsyncCopyHoldsItsSource) {
  const auto stream = mock.make_stream(0);
  int released = 0;
  float values[2] = {1, 2};
  Tensor source = Tensor::from_memory(values, {2}, DType::f32, [&] { ++released; });
  const PendingCopy copy = clone_to_async(source, kMock0, *stream);
  source = {};
  EXPECT_EQ(released, 0);
  copy.done->wait();
  EXPECT_EQ(released, 1);
}

TEST_F(DeviceCopyAsync, AnAsyncCopyHoldsItsTargetAndDeviceSource) {
  const auto stream = mock.make_stream(0);
  Tensor there = to_device(counting({4}), kMock0);
  PendingCopy copy = clone_to_async(there, kMock1, *stream);
  there = {};
  copy.tensor = {};
  EXPECT_EQ(mock.live_blocks().size(), 2u);
  copy.done->wait();
  EXPECT_TRUE(mock.live_blocks().empty());
}

TEST_F(DeviceCopyAsync, LaterWorkOfTheStreamSeesTheCopy) {
  const auto stream = mock.make_stream(0);
  const PendingCopy up = clone_to_async(counting({3}), kMock0, *stream);
  const PendingCopy down = clone_to_async(up.tensor, kCpu, *stream);
  const PendingCopy packed = clone_to_async(up.tensor.view_as({2}, {2}, 0), kCpu, *stream);
  EXPECT_FALSE(up.done->is_done());
  packed.done->wait();
  EXPECT_EQ(elements_of(down.tensor), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(elements_of(packed.tensor), (std::vector<float>{0, 2}));
}

TEST_F(DeviceCopyAsync, CopiesOnTwoStreamsOverlapUntilOneWaits) {
  const auto first = mock.make_stream(0), second = mock.make_stream(1);
  const PendingCopy up = clone_to_async(counting({3}), kMock0, *first);
  second->wait_for(up.done);
  const PendingCopy across = clone_to_async(up.tensor, kMock1, *second);
  EXPECT_GT(first->pending(), 0);
  EXPECT_GT(second->pending(), 0);
  across.done->wait();
  EXPECT_TRUE(up.done->is_done());
  EXPECT_EQ(elements_of(to_device(across.tensor, kCpu)), (std::vector<float>{0, 1, 2}));
}

TEST_F(DeviceCopyAsync, ALateFailureIsToldByTheEvent) {
  const auto stream = mock.make_stream(0);
  mock.fail_copy(1, MockDevice::Failure::on_stream);
  PendingCopy copy = clone_to_async(counting({3}), kMock0, *stream);
  EXPECT_THROW(copy.done->wait(), EnvironmentError);
}

TEST_F(DeviceCopyAsync, TheStreamMustBelongToTheCopy) {
  const auto stream = mock.make_stream(1);
  EXPECT_THROW(clone_to_async(counting({3}), kMock0, *stream), UsageError);
}

TEST_F(DeviceCopyAsync, AHostCloneOnTheHostStreamIsDoneAtOnce) {
  Stream stream;
  const PendingCopy copy = clone_to_async(counting({3}).view_as({2}, {2}, 0), kCpu, stream);
  EXPECT_TRUE(copy.done->is_done());
  EXPECT_EQ(elements_of(copy.tensor), (std::vector<float>{0, 2}));
}

}  // namespace
}  // namespace tutti
