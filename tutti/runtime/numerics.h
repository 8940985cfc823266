// What a rank promises about the bits of its results.
#pragma once

#include <cstdint>

namespace tutti {

// strict: sums have one order, the same bits on any layout and any number of threads. fast: large matrix products may come
// from libraries whose order of summation is their own.
enum class NumericsMode : uint8_t { strict, fast };

// Of the current rank (RankContext); strict until it is set, and while a StrictScope of the rank lives. Any thread; what is
// running goes on as it began.
NumericsMode numerics_mode();
void set_numerics_mode(NumericsMode mode);

// Strict while one lives, on all threads of the rank: for whoever compares bits. Any thread, overlapping as they like.
class StrictScope {
 public:
  StrictScope();
  ~StrictScope();
  StrictScope(const StrictScope&) = delete;
  StrictScope& operator=(const StrictScope&) = delete;

 private:
  void* rank_;
};

// The rank's mode while one lives, then the one before. One at a time, or one inside the other: scopes that overlap on two
// threads of a rank would leave it in the wrong one.
class NumericsScope {
 public:
  explicit NumericsScope(NumericsMode mode);
  ~NumericsScope() { set_numerics_mode(before_); }
  NumericsScope(const NumericsScope&) = delete;
  NumericsScope& operator=(const NumericsScope&) = delete;

 private:
  NumericsMode before_;
};

}  // namespace tutti
