// How ranks publish shared copies of parameters (docs/fsdp.md), for tests of what the waits are for.
#pragma once

#include <functional>

namespace tutti::parallel {

struct PublishProtocol {
  // Never switch these off but to see what happens then: nobody writes while another one reads the values of before,
  // and nobody reads before all have written.
  bool waits_for_readers = true, waits_for_writers = true;
  // Before ranks write, they fill what they will write with NaN: who reads in between computes NaN. `slow_rank` of the
  // group then calls `while_poisoned`.
  bool poisons = false;
  int slow_rank = -1;
  std::function<void()> while_poisoned = {};
};

// The one of this process. Tests change it while no rank publishes.
PublishProtocol& publish_protocol();

}  // namespace tutti::parallel
