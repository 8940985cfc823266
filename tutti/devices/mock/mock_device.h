// MockDevice: an accelerator simulated in host memory, for tests of code that must not depend on where tensors are.
//
// While it lives, Device{DeviceKind::mock, i} exists. Memory is poisoned when it is allocated and when it is freed, and
// has guard zones that are checked; every call is counted; the n-th allocation or copy fails on request; streams run
// late (MockStream). Thread safety: all functions may be called by any thread.
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

#include "tutti/devices/mock/mock_stream.h"

namespace tutti {

class MockDevice {
 public:
  // The value of every byte of new memory (NaN in each float format, -1 in the integers), and of freed memory.
  static constexpr unsigned char kFresh = 0xff, kFreed = 0xfb;

  explicit MockDevice(int devices = 2);
  ~MockDevice();  // blocks that are still allocated keep their memory and may be freed later
  MockDevice(const MockDevice&) = delete;
  MockDevice& operator=(const MockDevice&) = delete;

  struct Calls {
    int64_t count = 0;
    const void* last_data = nullptr;  // the address on the device; for a copy within the device, the target
    int64_t last_nbytes = 0;
    int last_index = -1;
  };
  struct Counts {
    Calls allocate, deallocate, copy_from_host, copy_to_host, copy_on_device;
  };
  Counts counts() const;

  // When a failing copy fails: as an exception of the call, or later, when the stream executes it.
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
  // One line per error: blocks that were not freed, writes outside a block or after it was freed, freeing memory that
  // is not allocated. "" when there is none.
  std::string report() const;

  std::unique_ptr<MockStream> make_stream(int index = 0);

 private:
  class Backend;
  std::unique_ptr<Backend> backend_;
};

}  // namespace tutti
