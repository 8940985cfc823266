#include "tutti/tensor/device_copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "tutti/devices/mock/mock_device.h"

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

class DeviceCopy : public ::testing::Test {
 protected:
  // Tensors of a test end before this runs.
  void TearDown() override { EXPECT_EQ(mock.report(), ""); }
  MockDevice mock;
};

TEST_F(DeviceCopy, ThereAndBackGivesTheSameElements) {
  const Tensor source = counting({3, 5});
  const Tensor there = to_device(source, kMock1);
  EXPECT_EQ(there.device(), kMock1);
  EXPECT_EQ(there.extents(), source.extents());
  EXPECT_EQ(there.dtype(), source.dtype());
  const Tensor back = to_device(there, kCpu);
  EXPECT_EQ(back.device(), kCpu);
  EXPECT_EQ(elements_of(back), elements_of(source));
}

TEST_F(DeviceCopy, EveryDTypeTravels) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    const Tensor source = Tensor::empty({1}, dtype);
    store_from_int64(source.raw_data(), dtype, 1);
    const Tensor back = to_device(to_device(source, kMock0), kCpu);
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.item(), 1) << name_of(dtype);
  }
}

TEST_F(DeviceCopy, ToDeviceIsTheTensorItselfWhenItIsThere) {
  const Tensor host = counting({2});
  EXPECT_TRUE(to_device(host, kCpu).is_same(host));
  const Tensor there = to_device(host, kMock0);
  EXPECT_TRUE(to_device(there, kMock0).is_same(there));
}

TEST_F(DeviceCopy, ACloneNeverShares) {
  const Tensor host = counting({4});
  const Tensor copy = clone_to(host, kCpu);
  EXPECT_NE(copy.raw_data(), host.raw_data());
  EXPECT_EQ(elements_of(copy), elements_of(host));
  const Tensor there = clone_to(host, kMock0), twin = clone_to(there, kMock0);
  EXPECT_NE(there.raw_data(), twin.raw_data());
  EXPECT_EQ(elements_of(to_device(twin, kCpu)), elements_of(host));
}

TEST_F(DeviceCopy, TheSameIndexCopiesOnTheDevice) {
  const Tensor there = clone_to(counting({4}), kMock0);
  const MockDevice::Counts before = mock.counts();
  const Tensor twin = clone_to(there, kMock0);
  EXPECT_EQ(mock.counts().copy_on_device.count, before.copy_on_device.count + 1);
  EXPECT_EQ(mock.counts().copy_on_device.last_data, twin.raw_data());
  EXPECT_EQ(mock.counts().copy_to_host.count, before.copy_to_host.count);
}

TEST_F(DeviceCopy, AnotherIndexGoesThroughTheHost) {
  const Tensor source = counting({7});
  const Tensor moved = to_device(to_device(source, kMock0), kMock1);
  EXPECT_EQ(moved.device(), kMock1);
  EXPECT_EQ(mock.counts().copy_to_host.last_index, 0);
  EXPECT_EQ(mock.counts().copy_from_host.last_index, 1);
  EXPECT_EQ(elements_of(to_device(moved, kCpu)), elements_of(source));
}

TEST_F(DeviceCopy, ALargeTensorIsStagedInPieces) {
  const Tensor source = counting({(5 << 20) / 2 + 3});  // 10 MiB and a bit
  const Tensor moved = to_device(to_device(source, kMock0), kMock1);
  EXPECT_EQ(mock.counts().copy_to_host.count, 3);
  EXPECT_EQ(mock.counts().copy_to_host.last_nbytes, (2 << 20) + 12);
  EXPECT_EQ(elements_of(to_device(moved, kCpu)), elements_of(source));
}

TEST_F(DeviceCopy, NoElementsSucceedWithoutATransfer) {
  for (const Extents& sizes : {Extents{0}, Extents{3, 0, 2}}) {
    const Tensor there = to_device(Tensor::empty(sizes), kMock0);
    const Tensor back = to_device(to_device(there, kMock1), kCpu);
    EXPECT_EQ(there.device(), kMock0);
    EXPECT_EQ(back.extents(), sizes);
  }
  EXPECT_EQ(mock.counts().copy_from_host.count + mock.counts().copy_to_host.count, 0);
}

TEST_F(DeviceCopy, AScalarTravels) { EXPECT_EQ(to_device(to_device(Tensor::scalar(2.5f), kMock0), kCpu).item(), 2.5); }

TEST_F(DeviceCopy, ADensePermutationKeepsItsStrides) {
  const Tensor transposed = counting({2, 3, 4}).view_as({4, 2, 3}, {1, 12, 4}, 0);
  const Tensor there = to_device(transposed, kMock0);
  EXPECT_EQ(there.strides(), transposed.strides());
  EXPECT_EQ(mock.counts().copy_from_host.count, 1);
  const Tensor back = to_device(there, kCpu);
  EXPECT_EQ(back.strides(), transposed.strides());
  EXPECT_EQ(elements_of(back), elements_of(transposed));
  EXPECT_EQ(elements_of(clone_to(transposed, kCpu)), elements_of(transposed));
  EXPECT_EQ(clone_to(transposed, kCpu).strides(), transposed.strides());
}

TEST_F(DeviceCopy, AStridedViewIsPacked) {
  const Tensor view = counting({4, 6}).view_as({4, 2}, {6, 3}, 1);
  const Tensor there = to_device(view, kMock0);
  EXPECT_TRUE(there.is_contiguous());
  EXPECT_EQ(mock.counts().copy_from_host.last_nbytes, view.nbytes());
  EXPECT_EQ(elements_of(to_device(there, kCpu)), elements_of(view));
}

TEST_F(DeviceCopy, AStridedViewOnADeviceMovesOnlyItsStretch) {
  const Tensor base = to_device(counting({10, 10}), kMock0);
  const Tensor view = base.view_as({3, 2}, {10, 4}, 21);
  const Tensor back = to_device(view, kCpu);
  EXPECT_EQ(mock.counts().copy_to_host.last_nbytes, (2 * 10 + 4 + 1) * 4);
  EXPECT_EQ(elements_of(back), (std::vector<float>{21, 25, 31, 35, 41, 45}));
  EXPECT_EQ(elements_of(to_device(to_device(view, kMock1), kCpu)), elements_of(back));
  EXPECT_EQ(elements_of(to_device(clone_to(view, kMock0), kCpu)), elements_of(back));
}

TEST_F(DeviceCopy, ASliceMovesOnlyItsBytes) {
  const Tensor rows = to_device(counting({8, 4}), kMock0).view_as({2, 4}, {4, 1}, 12);
  EXPECT_EQ(elements_of(to_device(rows, kCpu)), (std::vector<float>{12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(mock.counts().copy_to_host.last_nbytes, 32);
  EXPECT_EQ(mock.counts().copy_to_host.last_data, rows.raw_data());
}

TEST_F(DeviceCopy, ExpandedAndReversedViewsTravel) {
  const Tensor base = to_device(counting({3}), kMock0);
  EXPECT_EQ(elements_of(to_device(base.view_as({2, 3}, {0, 1}, 0), kCpu)), (std::vector<float>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(mock.counts().copy_to_host.last_nbytes, 12);
  EXPECT_EQ(elements_of(to_device(base.view_as({3}, {-1}, 2), kCpu)), (std::vector<float>{2, 1, 0}));
  EXPECT_EQ(elements_of(to_device(to_device(counting({3}).view_as({3}, {-1}, 2), kMock0), kCpu)),
            (std::vector<float>{2, 1, 0}));
}

TEST_F(DeviceCopy, AnUndefinedTensorOrUnknownDeviceIsAUsageError) {
  EXPECT_THROW(clone_to(Tensor(), kMock0), UsageError);
  EXPECT_THROW(to_device(Tensor(), kCpu), UsageError);
  EXPECT_THROW(to_device(counting({1}), {DeviceKind::cuda, 0}), UsageError);
  EXPECT_THROW(to_device(counting({1}), {DeviceKind::mock, 9}), UsageError);
}

TEST_F(DeviceCopy, AFailedAllocationSaysWhatAndWhere) {
  const Tensor source = counting({2, 3});
  mock.fail_allocate(1);
  try {
    to_device(source, kMock1);
    FAIL();
  } catch (const DeviceCopyError& e) {
    EXPECT_EQ(e.step, CopyStep::allocate);
    EXPECT_EQ(e.source, kCpu);
    EXPECT_EQ(e.target, kMock1);
    EXPECT_EQ(e.sizes, (Extents{2, 3}));
    EXPECT_EQ(e.nbytes, 24);
    EXPECT_EQ(e.reason, "mock:1: out of memory: 24 bytes (asked to fail)");
    EXPECT_EQ(std::string(e.what()),
              "copy of a tensor [2, 3] from cpu to mock:1: allocation of 24 bytes failed: " + e.reason);
  }
}

TEST_F(DeviceCopy, AFailedTransferFreesTheBlock) {
  const Tensor source = counting({6});
  mock.fail_copy(1);
  try {
    to_device(source, kMock0);
    FAIL();
  } catch (const DeviceCopyError& e) {
    EXPECT_EQ(e.step, CopyStep::host_to_device);
  }
  EXPECT_TRUE(mock.live_blocks().empty());
  EXPECT_EQ(mock.counts().deallocate.count, 1);
}

TEST_F(DeviceCopy, ALateFailureFreesTheBlockToo) {
  mock.fail_copy(1, MockDevice::Failure::on_stream);
  EXPECT_THROW(to_device(counting({6}), kMock0), DeviceCopyError);
  EXPECT_TRUE(mock.live_blocks().empty());
  EXPECT_NO_THROW(to_device(counting({6}), kMock0)) << "the stream is usable again";
}

TEST_F(DeviceCopy, EveryStepOfADeviceToDeviceCopyMayFail) {
  const Tensor there = to_device(counting({(5 << 20) / 2}), kMock0);
  for (auto failure : {MockDevice::Failure::at_call, MockDevice::Failure::on_stream}) {
    for (int n = 1; n <= 6; ++n) {
      mock.fail_copy(n, failure);
      EXPECT_THROW(to_device(there, kMock1), DeviceCopyError) << n;
      EXPECT_EQ(mock.live_blocks().size(), 1u) << n;
    }
  }
  EXPECT_EQ(to_device(to_device(there, kMock1), kCpu).data<float>()[1000], 1000);
}

TEST_F(DeviceCopy, AFailedDeviceToHostCopyKeepsTheSource) {
  const Tensor there = to_device(counting({6}), kMock0);
  mock.fail_copy(1);
  try {
    to_device(there, kCpu);
    FAIL();
  } catch (const DeviceCopyError& e) {
    EXPECT_EQ(e.step, CopyStep::device_to_host);
  }
  EXPECT_EQ(elements_of(to_device(there, kCpu)), elements_of(counting({6})));
}

TEST_F(DeviceCopy, ATensorOnADeviceRefusesHostAccess) {
  const Tensor there = to_device(counting({1}), kMock0);
  EXPECT_THROW(there.item(), UsageError);
  EXPECT_THROW(copy_elements(there, there), UsageError);
}

}  // namespace
}  // namespace tutti
