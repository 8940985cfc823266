// The numerics mode: what a rank guarantees about the bits of its results.
#pragma once

#include <cstdint>

namespace tutti {

// strict: sums have a fixed order, which gives the same bits on any layout and any number of threads. fast: large
// matrix products may use libraries with their own order of summation.
enum class NumericsMode : uint8_t { strict, fast };

// The mode of the current rank (RankContext); strict by default, and while a StrictScope of the rank lives. May be
// called by any thread; operations that are running keep the mode in which they began.
NumericsMode numerics_mode();
void set_numerics_mode(NumericsMode mode);

// Makes all threads of the rank strict while it lives, for code that compares bits. Scopes may be created by any thread
// and may overlap.
class StrictScope {
 public:
  StrictScope();
  ~StrictScope();
  StrictScope(const StrictScope&) = delete;
  StrictScope& operator=(const StrictScope&) = delete;

 private:
  void* rank_;
};

// Sets the rank's mode while it lives, then restores the previous one. Scopes must be nested: scopes that overlap on
// two threads of a rank would leave it in the wrong mode.
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
