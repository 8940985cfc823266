// The values of tensors at one moment, copied while they are still read and, soon, changed: what a save in the
// background writes.
//
// The copy takes blocks. A copier works from the front; whoever is about to change the tensors takes the blocks that it
// has not reached, from the end. So the tensors are held only while somebody copies, and the memory of the copies is
// allocated and touched before.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "tutti/train/checkpoint/checkpoint_tensors.h"

namespace tutti::train {

// One thread makes leases, copies what is left and ends them; another one may copy meanwhile.
class StateLease {
 public:
  static constexpr size_t kBlockBytes = size_t{256} << 10;

  // Memory for tensors of these sizes: of distributed ones, for the part that this rank stores.
  explicit StateLease(const NamedTensors& tensors);

  // The values of now are to be copied. The tensors are those of the constructor, or of the same sizes, and must not
  // change before all are copied. UsageError when the lease before was not completed, or for other tensors.
  void begin(const NamedTensors& tensors);
  // Copies from the front until nothing is left that nobody copies. `delay`: before each block, for tests.
  void copy(std::chrono::microseconds delay = {});
  // Returns when all is copied. For the copier, which then reads the copies.
  void wait() const;
  // Copies what nobody has copied, from the end, and returns when all is copied: the tensors may change. Returns how
  // many blocks it has copied. Does nothing without a lease.
  size_t complete();

  size_t blocks() const { return count_; }
  // The copies, under the names of the tensors.
  const NamedTensors& copies() const { return copies_; }

 private:
  enum State : uint8_t { here, taken, copied };
  struct Block {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    size_t nbytes = 0;
    std::atomic<State> state{copied};
  };
  static bool take(Block& block);

  NamedTensors copies_, held_;
  size_t count_ = 0;
  std::unique_ptr<Block[]> blocks_;
};

}  // namespace tutti::train
