// How ranks publish shared copies of parameters (docs/fsdp.md), for tests of what the waits are for.
#pragma once

#include <chrono>

namespace tutti::parallel {

struct PublishProtocol {
  // Never switch these off but to see what happens then: nobody writes while another one reads the values of before, and nobody reads before all have written.
  bool waits_for_readers = true, waits_for_writers = true;
  // Before a rank writes its rows, it fills them with NaN, and `slow_rank` (of the group) leaves them so for a while: who reads in between computes NaN.
  bool poisons = false;
  int slow_rank = -1;
  std::chrono::milliseconds poisoned{0};
};

// The one of this process. Tests change it while no rank publishes.
PublishProtocol& publish_protocol();

}  // namespace tutti::parallel
