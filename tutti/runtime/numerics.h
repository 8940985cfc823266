// What a rank promises about the bits of its results.
#pragma once

#include <cstdint>

namespace tutti {

// strict: sums have one order, the same bits on any layout and any number of threads. fast: large matrix products may come
// from libraries whose order of summation is their own.
enum class NumericsMode : uint8_t { strict, fast };

// Of the current rank (RankContext); strict until it is set. Any thread; what is running goes on as it began.
NumericsMode numerics_mode();
void set_numerics_mode(NumericsMode mode);

// The mode while one lives.
class NumericsScope {
 public:
  explicit NumericsScope(NumericsMode mode) : before_(numerics_mode()) { set_numerics_mode(mode); }
  ~NumericsScope() { set_numerics_mode(before_); }
  NumericsScope(const NumericsScope&) = delete;
  NumericsScope& operator=(const NumericsScope&) = delete;

 private:
  NumericsMode before_;
};

}  // namespace tutti
