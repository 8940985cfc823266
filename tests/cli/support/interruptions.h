// A run of the tiny model that is killed and stopped at random moments until it is done.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::test {

struct InterruptionReport {
  std::string difference;  // from the run that nobody disturbed; "" when there is none
  std::string counts;      // what was done at which moment, how often
};

// Interrupts starts of runs `count` times: SIGKILL of a rank or of the launcher, SIGTERM, SIGINT, two SIGINTs; while
// the program starts, trains, validates, saves or samples; on 1, 2 or 4 ranks, another number at every start. After
// each interruption the newest checkpoint must verify, and the finished run must have the tensors, losses, validations
// and text of the run that nobody disturbed. Equal seeds choose equal moments and signals, as far as the machine keeps
// time.
InterruptionReport interrupt_runs(uint64_t seed, int count);

}  // namespace tutti::test
