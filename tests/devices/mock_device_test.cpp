#include "tutti/devices/mock/mock_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "tutti/core/error.h"
#include "tutti/runtime/device_backend.h"

namespace tutti {
namespace {

constexpr Device mock_at(int16_t index) { return {DeviceKind::mock, index}; }

TEST(DeviceBackend, AKindWithoutABackendIsAUsageError) {
  for (Device device : {mock_at(0), Device{DeviceKind::cuda, 0}, kCpu})
    EXPECT_THROW(device_backend(device), UsageError);
}

TEST(DeviceBackend, AnIndexThatDoesNotExistIsNamed) {
  MockDevice mock(2);
  EXPECT_NO_THROW(device_backend(mock_at(1)));
  EXPECT_THROW(device_backend(mock_at(-1)), UsageError);
  try {
    device_backend(mock_at(2));
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "device mock:2 does not exist; there are 2 of its kind");
  }
}

TEST(DeviceBackend, TheCpuCannotBeReplaced) {
  EXPECT_THROW(register_device_backend(DeviceKind::cpu, nullptr), UsageError);
}

TEST(DeviceBackend, EachDeviceHasOneDefaultStream) {
  MockDevice mock(2);
  EXPECT_EQ(&default_stream(mock_at(0)), &default_stream(mock_at(0)));
  EXPECT_NE(&default_stream(mock_at(0)), &default_stream(mock_at(1)));
  EXPECT_EQ(default_stream(mock_at(1)).device(), mock_at(1));
  EXPECT_EQ(default_stream(kCpu).device(), kCpu);
  EXPECT_EQ(&default_stream({DeviceKind::cpu, 1}), &default_stream(kCpu)) << "the host is one device";
}

TEST(StreamScope, IsTheCurrentStreamOfItsDeviceAndThread) {
  MockDevice mock(2);
  const auto first = mock.make_stream(0), second = mock.make_stream(0), other = mock.make_stream(1);
  EXPECT_EQ(&current_stream(mock_at(0)), &default_stream(mock_at(0)));
  {
    const StreamScope outer(*first);
    EXPECT_EQ(&current_stream(mock_at(0)), first.get());
    EXPECT_EQ(&current_stream(mock_at(1)), &default_stream(mock_at(1)));
    EXPECT_EQ(&current_stream(kCpu), &default_stream(kCpu));
    {
      const StreamScope elsewhere(*other), inner(*second);
      EXPECT_EQ(&current_stream(mock_at(0)), second.get());
      EXPECT_EQ(&current_stream(mock_at(1)), other.get());
      Stream* of_another_thread = nullptr;
      std::thread([&] { of_another_thread = &current_stream(mock_at(0)); }).join();
      EXPECT_EQ(of_another_thread, &default_stream(mock_at(0)));
    }
    EXPECT_EQ(&current_stream(mock_at(0)), first.get());
    EXPECT_EQ(&current_stream(mock_at(1)), &default_stream(mock_at(1)));
  }
  EXPECT_EQ(&current_stream(mock_at(0)), &default_stream(mock_at(0)));
}

TEST(CpuStream, IsInline) {
  Stream stream;
  bool ran = false;
  stream.submit([&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_TRUE(stream.record()->is_done());
  stream.synchronize();
}

class MockDeviceTest : public ::testing::Test {
 protected:
  MockDevice mock;
  DeviceBackend& backend = device_backend(mock_at(0));
  std::unique_ptr<MockStream> stream = mock.make_stream(0);
};

TEST_F(MockDeviceTest, FreshMemoryIsPoisoned) {
  auto* data = static_cast<unsigned char*>(backend.allocate(100, 0));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(data[i], MockDevice::kFresh);
  float value;
  std::memcpy(&value, data, sizeof value);
  EXPECT_TRUE(value != value) << "poison reads as NaN";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  backend.deallocate(data, 100, 0);
  EXPECT_EQ(mock.report(), "");
}

TEST_F(MockDeviceTest, FreedMemoryIsPoisonedAndWatched) {
  auto* data = static_cast<unsigned char*>(backend.allocate(10, 0));
  data[3] = 1;
  backend.deallocate(data, 10, 0);
  EXPECT_EQ(data[3], MockDevice::kFreed);
  EXPECT_EQ(mock.report(), "");
  data[3] = 1;
  EXPECT_EQ(mock.report(), "mock:0: 10 bytes were written after they were freed\n");
}

TEST_F(MockDeviceTest, ReportsLeaks) {
  void* data = backend.allocate(24, 1);
  ASSERT_EQ(mock.live_blocks().size(), 1u);
  EXPECT_EQ(mock.live_blocks()[0].data, data);
  EXPECT_EQ(mock.report(), "mock:1: 24 bytes are still allocated\n");
  backend.deallocate(data, 24, 1);
  EXPECT_EQ(mock.report(), "");
}

TEST_F(MockDeviceTest, ReportsWritesOutsideABlock) {
  auto* data = static_cast<unsigned char*>(backend.allocate(10, 0));
  data[10] = 0;
  EXPECT_NE(mock.report().find("written outside a block of 10 bytes"), std::string::npos);
  backend.deallocate(data, 10, 0);
  EXPECT_EQ(mock.report(), "mock:0: written outside a block of 10 bytes\n");
}

TEST_F(MockDeviceTest, ReportsFreeingTwiceAndFreeingWithOtherNumbers) {
  void* data = backend.allocate(10, 0);
  backend.deallocate(data, 20, 1);
  backend.deallocate(data, 10, 0);
  EXPECT_EQ(mock.report(),
            "a block of 10 bytes on mock:0 was freed as 20 bytes on mock:1\n"
            "mock:0: 10 bytes freed that are not allocated\n");
}

TEST_F(MockDeviceTest, CountsCallsWithTheirLastArguments) {
  int host[4] = {1, 2, 3, 4};
  void* a = backend.allocate(16, 0);
  void* b = backend.allocate(8, 1);
  backend.copy_from_host(a, host, 16, 0, *stream);
  backend.copy_to_host(host, b, 8, 1, *stream);
  backend.copy_on_device(a, static_cast<char*>(a) + 8, 8, 0, *stream);
  stream->synchronize();
  const MockDevice::Counts counts = mock.counts();
  EXPECT_EQ(counts.allocate.count, 2);
  EXPECT_EQ(counts.allocate.last_data, b);
  EXPECT_EQ(counts.allocate.last_nbytes, 8);
  EXPECT_EQ(counts.allocate.last_index, 1);
  EXPECT_EQ(counts.copy_from_host.last_data, a);
  EXPECT_EQ(counts.copy_from_host.last_nbytes, 16);
  EXPECT_EQ(counts.copy_to_host.last_data, b);
  EXPECT_EQ(counts.copy_to_host.last_index, 1);
  EXPECT_EQ(counts.copy_on_device.count, 1);
  EXPECT_EQ(counts.deallocate.count, 0);
  backend.deallocate(a, 16, 0);
  backend.deallocate(b, 8, 1);
  EXPECT_EQ(mock.counts().deallocate.last_data, b);
}

TEST_F(MockDeviceTest, TheNthAllocationFailsOnce) {
  mock.fail_allocate(2);
  void* first = backend.allocate(8, 0);
  try {
    backend.allocate(16, 1);
    FAIL();
  } catch (const EnvironmentError& e) {
    EXPECT_STREQ(e.what(), "mock:1: out of memory: 16 bytes (asked to fail)");
  }
  void* third = backend.allocate(8, 0);
  backend.deallocate(first, 8, 0);
  backend.deallocate(third, 8, 0);
  EXPECT_EQ(mock.report(), "");
}

TEST_F(MockDeviceTest, TheNthCopyFailsAtTheCall) {
  char host[8] = {};
  void* data = backend.allocate(8, 0);
  mock.fail_copy(2);
  backend.copy_from_host(data, host, 8, 0, *stream);
  EXPECT_THROW(backend.copy_to_host(host, data, 8, 0, *stream), EnvironmentError);
  EXPECT_NO_THROW(backend.copy_to_host(host, data, 8, 0, *stream));
  stream->synchronize();
  backend.deallocate(data, 8, 0);
}

TEST_F(MockDeviceTest, ACopyMayFailLate) {
  char host[8] = {};
  void* data = backend.allocate(8, 0);
  mock.fail_copy(1, MockDevice::Failure::on_stream);
  backend.copy_from_host(data, host, 8, 0, *stream);
  EXPECT_THROW(stream->synchronize(), EnvironmentError);
  EXPECT_NO_THROW(stream->synchronize()) << "told once";
  backend.deallocate(data, 8, 0);
}

TEST_F(MockDeviceTest, ACopyOutsideLiveBlocksIsRefused) {
  char host[16] = {};
  void* data = backend.allocate(8, 0);
  EXPECT_THROW(backend.copy_from_host(data, host, 16, 0, *stream), UsageError) << "too long";
  EXPECT_THROW(backend.copy_from_host(data, host, 8, 1, *stream), UsageError) << "other device";
  EXPECT_THROW(backend.copy_from_host(host, host, 8, 0, *stream), UsageError) << "host pointer";
  backend.deallocate(data, 8, 0);
}

TEST_F(MockDeviceTest, ABlockFreedBeforeItsCopyRunsIsCaught) {
  char host[8] = {};
  void* data = backend.allocate(8, 0);
  backend.copy_from_host(data, host, 8, 0, *stream);
  backend.deallocate(data, 8, 0);
  EXPECT_THROW(stream->synchronize(), UsageError);
  EXPECT_EQ(mock.report(), "");
}

TEST_F(MockDeviceTest, ABlockMayBeFreedAfterTheDeviceIsGone) {
  auto second = std::make_unique<MockDevice>();
  DeviceBackend& its_backend = device_backend(mock_at(0));
  void* data = its_backend.allocate(8, 0);
  second.reset();
  its_backend.deallocate(data, 8, 0);
}

}  // namespace
}  // namespace tutti
