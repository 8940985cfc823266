// How often a fuzz test damages what it reads: as often as it says, or for as long as TUTTI_FUZZ_SECONDS says.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace tutti::testing {

// for (FuzzRounds rounds(4000); rounds.go_on();) ...
// The seconds are those of processors that the process takes, since a long run means so much work, also beside others.
// A generator that is seeded before the loop makes the same damage in the first rounds of every run.
class FuzzRounds {
 public:
  explicit FuzzRounds(int usual) : usual_(usual) {
    if (const char* seconds = std::getenv("TUTTI_FUZZ_SECONDS")) seconds_ = std::atof(seconds);
  }
  bool go_on() {
    if (made_ >= usual_ && processor_seconds() - begin_ >= seconds_) return false;
    ++made_;
    return true;
  }
  int64_t index() const { return made_ - 1; }  // of the round under way
  int64_t made() const { return made_; }

 private:
  static double processor_seconds() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  const int64_t usual_;
  int64_t made_ = 0;
  double seconds_ = 0;
  const double begin_ = processor_seconds();
};

}  // namespace tutti::testing
