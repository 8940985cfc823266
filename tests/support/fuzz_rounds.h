// How often a fuzz test damages what it reads: as often as it says, or for as long as TUTTI_FUZZ_SECONDS says.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace tutti::testing {

// for (FuzzRounds rounds(4000); rounds.go_on();) ...
// A generator that is seeded before the loop makes the same damage in the first rounds of every run.
class FuzzRounds {
 public:
  explicit FuzzRounds(int usual) : usual_(usual) {
    if (const char* seconds = std::getenv("TUTTI_FUZZ_SECONDS")) seconds_ = std::chrono::seconds(std::atoll(seconds));
  }
  bool go_on() {
    if (made_ >= usual_ && std::chrono::steady_clock::now() - begin_ >= seconds_) return false;
    ++made_;
    return true;
  }
  int64_t index() const { return made_ - 1; }  // of the round under way
  int64_t made() const { return made_; }

 private:
  const int64_t usual_;
  int64_t made_ = 0;
  std::chrono::seconds seconds_{0};
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tutti::testing
