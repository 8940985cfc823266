// MockDevice: an accelerator made of host memory, for tests of everything that must not care where tensors live.
//
// While it lives, Device{DeviceKind::mock, i} exists. Memory is poisoned when it is allocated and when it is freed, and
// has borders that are checked; every call is counted; the n-th allocation or copy fails on request; streams are late
// (MockStream). Thread safety: all calls from any thread.
//
//   MockDevice mock;
//   mock.fail_copy(2);
//   ... EXPECT_THROW(...);
//   EXPECT_EQ(mock.report(), "");  // no leak, no damage, no misuse
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/runtime/mock_stream.h"

namespace tutti {

class MockDevice {
 public:
  // Every byte of fresh memory: NaN in each float format, -1 in the integers. And of memory that was freed.
  static constexpr unsigned char kFresh = 0xff, kFreed = 0xfb;

  explicit MockDevice(int devices = 2);
  ~MockDevice();  // blocks that still live keep their memory and may be freed later
  MockDevice(const MockDevice&) = delete;
  MockDevice& operator=(const MockDevice&) = delete;

  struct Calls {
    int64_t count = 0;
    const void* last_data = nullptr;  // the device side; of an on-device copy the target
    int64_t last_nbytes = 0;
    int last_index = -1;
  };
  struct Counts {
    Calls allocate, deallocate, copy_from_host, copy_to_host, copy_on_device;
  };
  Counts counts() const;

  // When a failing copy fails: as an exception of the call, or late, when the stream comes to it.
  enum class Failure { at_call, on_stream };
  // The n-th allocation (copy) from now fails; 1 is the next one.
  void fail_allocate(int n);
  void fail_copy(int n, Failure failure = Failure::at_call);

  struct Block {
    const void* data;
    int64_t nbytes;
    int index;
  };
  std::vector<Block> live_blocks() const;
  // What went wrong, a line each: live blocks, writes outside a block or after its end of life, freeing what is not
  // allocated. "" when nothing did.
  std::string report() const;

  std::unique_ptr<MockStream> make_stream(int index = 0);

 private:
  class Backend;
  std::unique_ptr<Backend> backend_;
};

}  // namespace tutti
